"""Jobs of Kubernetes, through kubectl, from the project's manifest template.

The template has what depends on the cluster: the image, the volume with the workspace, tolerations, secrets. The job's
name, the stage's command and its resources are added.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lexmill.base.errors import LexmillError, RetryableError, UserError
from lexmill.base.yaml_file import read_yaml
from lexmill.compute.client import ask
from lexmill.compute.job import VARIABLE, JobFolder, handed_on
from lexmill.compute.launcher import Look
from lexmill.compute.place import Place
from lexmill.compute.settings import Kubernetes

_SILENT = re.compile(
    r"refused|timed? ?out|no route|unreachable|EOF|TooManyRequests|Service ?Unavailable", re.IGNORECASE
)
# exec: Python gets SIGTERM, and its exit code is the container's.
_SHELL = 'exec "$@" > >(tee -a "$LEXMILL_JOB/log") 2>&1'


class KubernetesLauncher:
    """Make a Job; its name is the job's."""

    name = "kubernetes"

    def __init__(self, settings: Kubernetes) -> None:
        self._settings = settings

    def submit(self, place: Place, command: Sequence[str], folder: JobFolder, environment: dict[str, str]) -> str:
        """Create the Job; return its name."""
        made = manifest(place, command, folder, environment, Path(self._settings.template))
        self._call("create", "-f", "-", given=json.dumps(made))
        return str(made["metadata"]["name"])

    def look(self, job: str) -> Look:
        """Return the state of the Job and its pods."""
        found = self._get("job", job)
        pods = self._get("pods", f"--selector=job-name={job}").get("items", [])
        states = [state for pod in pods for state in _container_states(pod)]
        if not found:
            # Its pods outlive a deleted Job until they have ended in order.
            return Look("running", "ending") if pods else Look("ended", "deleted")
        status = found.get("status", {})
        for condition in status.get("conditions", []):
            if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
                detail = str(condition.get("reason") or condition["type"])
                return Look("ended", detail, _failure(job, detail, states))
        if any("running" in state for state in states):
            return Look("running", "running")
        reasons = [state["waiting"].get("reason", "") for state in states if "waiting" in state]
        reasons += [
            condition.get("reason", "")
            for pod in pods
            for condition in pod.get("status", {}).get("conditions", [])
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        ]
        return Look("waiting", ", ".join(filter(None, reasons)) or "pending")

    def cancel(self, job: str) -> None:
        """Send SIGTERM to its pod; SIGKILL follows after the template's terminationGracePeriodSeconds."""
        self._call("delete", "job", job, "--ignore-not-found", "--wait=false")

    def _get(self, *words: str) -> dict[str, Any]:
        text = self._call("get", *words, "--ignore-not-found", "--output=json")
        found: dict[str, Any] = json.loads(text) if text.strip() else {}
        return found

    def _call(self, *words: str, given: str = "") -> str:
        """Return the output of kubectl; raise as `ask`."""
        where = [f"--context={self._settings.context}"] if self._settings.context else []
        where += [f"--namespace={self._settings.namespace}"] if self._settings.namespace else []
        return ask("Kubernetes", ["kubectl", *where, *words], _SILENT, "install it", given=given)


def manifest(
    place: Place, command: Sequence[str], folder: JobFolder, environment: dict[str, str], template: Path
) -> dict[str, Any]:
    """Return the Job of a stage.

    Args:
        place: its resources.
        command: the stage's module and its arguments, without Python.
        folder: the job's folder in the workspace of this machine.
        environment: only our own variables are passed on; the rest is the container's.
        template: a Job whose first container is the stage's.

    Raises:
        UserError: the template is no Job, or its container has no workingDir.
    """
    if not template.is_file():
        raise UserError("kubernetes.template: the file is not there", template)
    made = read_yaml(template)
    try:
        container = made["spec"]["template"]["spec"]["containers"][0]
        workspace = str(container["workingDir"])
        assert made["kind"] == "Job"
    except (TypeError, KeyError, IndexError, AssertionError):
        raise UserError(
            "kubernetes.template: it must be a Job with a container whose workingDir is the workspace", template
        ) from None
    root = Path.cwd().resolve()
    ours = {
        name: value.replace(str(root), workspace, 1) if value.startswith(str(root)) else value
        for name, value in handed_on(environment).items()
    }
    ours[VARIABLE] = f"{workspace}/{os.path.relpath(folder.path, root)}"
    plain = re.sub(r"[^a-z0-9]+", "-", place.stage.lower()).strip("-")[:40]
    made.setdefault("metadata", {})["name"] = f"lexmill-{plain}-{uuid.uuid4().hex[:8]}"
    many = place.processes > 1
    start = ["-P", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={place.processes}"] if many else []
    container["command"] = ["bash", "-c", _SHELL, "stage", "python", *start, *command]
    given = container.setdefault("env", [])
    given += [{"name": name, "value": value} for name, value in sorted(ours.items())]
    asked: dict[str, Any] = {}
    if place.cpus:
        asked["cpu"] = str(place.cpus)
    if place.memory:
        asked["memory"] = f"{place.memory}Mi"
    if place.gpus:
        asked["nvidia.com/gpu"] = str(place.gpus)
    for kind in ("requests", "limits"):
        container.setdefault("resources", {}).setdefault(kind, {}).update(asked)
    if place.seconds:
        made["spec"]["activeDeadlineSeconds"] = int(place.seconds)
    return dict(made)


def _container_states(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [one.get("state", {}) for one in pod.get("status", {}).get("containerStatuses", [])]


def _failure(job: str, detail: str, states: list[dict[str, Any]]) -> LexmillError:
    """Return why a job ended whose stage left no status."""
    if any(state.get("terminated", {}).get("reason") == "OOMKilled" for state in states):
        return UserError(f"kubernetes job {job} needed more memory than it had; raise `memory` of this stage")
    if detail in ("DeadlineExceeded", "BackoffLimitExceeded"):
        return RetryableError(f"kubernetes job {job} was ended ({detail}); run it again")
    return LexmillError(
        f"kubernetes job {job} ended before its stage began, or was killed ({detail}); see its log above"
    )
