"""A kubectl and the part of Kubernetes behind it that the launcher speaks to: jobs whose pod is a process here.

Installed as `kubectl` on the path. KUBE_STATE names its folder: jobs/<name>.json as created, pods/<name>.json with the
process, and `error`, whose text every call fails with. Like the real one it keeps a pod after its job is deleted until
its process has ended, sends SIGTERM first and SIGKILL after the grace period, and knows exit codes and reasons.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate

FOLDER = Path(os.environ["KUBE_STATE"])
JOBS, PODS, ERROR = FOLDER / "jobs", FOLDER / "pods", FOLDER / "error"

# A pod: starts the container's command and notes how it ended.
POD = """
import json, os, subprocess, sys
from pathlib import Path
about = Path(sys.argv[1])
command = json.loads(sys.argv[2])
process = subprocess.Popen(command)
about.write_text(json.dumps({"pid": process.pid}))
code = process.wait()
about.write_text(json.dumps({"pid": process.pid, "code": code if code >= 0 else 128 - code}))
"""

# How a kubelet ends a pod.
END = """
import sys
import psutil
try:
    process = psutil.Process(int(sys.argv[1]))
    process.terminate()
    process.wait(float(sys.argv[2]))
except psutil.TimeoutExpired:
    process.kill()
except psutil.NoSuchProcess:
    sys.exit()  # it has just ended
"""


def fail(text: str) -> None:
    print(text, file=sys.stderr)
    sys.exit(1)


def create(text: str) -> None:
    job = json.loads(text)
    try:
        kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        fail(f"error validating data: {error.message}")
    name = job["metadata"]["name"]
    path = JOBS / f"{name}.json"
    if path.exists():
        fail(f'Error from server (AlreadyExists): jobs.batch "{name}" already exists')
    path.write_text(text)
    container = job["spec"]["template"]["spec"]["containers"][0]
    values = {one["name"]: one["value"] for one in container.get("env", []) if "value" in one}
    # Nothing of this machine's environment reaches a container, but for what its image has.
    image = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
    subprocess.Popen(
        [sys.executable, "-c", POD, str(PODS / f"{name}.json"), json.dumps(container["command"])],
        cwd=container["workingDir"],
        env=image | values,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    print(f"job.batch/{name} created")


def pod_of(name: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads((PODS / f"{name}.json").read_text()))
    except (FileNotFoundError, ValueError):
        return None


def state_of(pod: dict[str, Any] | None) -> dict[str, Any]:
    if pod is None:
        return {"waiting": {"reason": "ContainerCreating"}}
    if "code" not in pod:
        return {"running": {}}
    reason = {0: "Completed", 137: "OOMKilled"}.get(pod["code"], "Error")
    return {"terminated": {"exitCode": pod["code"], "reason": reason}}


def get_job(name: str) -> None:
    path = JOBS / f"{name}.json"
    if not path.exists():
        return
    job = json.loads(path.read_text())
    code = (pod_of(name) or {}).get("code")
    if code is not None:
        failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
        job["status"] = {"conditions": [{"type": "Complete", "status": "True"} if code == 0 else failed]}
    print(json.dumps(job))


def get_pods(selector: str) -> None:
    name = selector.partition("job-name=")[2]
    pod, job = pod_of(name), (JOBS / f"{name}.json").exists()
    items = []
    if job or (pod is not None and "code" not in pod):
        items = [{"status": {"containerStatuses": [{"state": state_of(pod)}], "conditions": []}}]
    print(json.dumps({"items": items}))


def delete(name: str) -> None:
    path = JOBS / f"{name}.json"
    if not path.exists():
        return
    grace = json.loads(path.read_text())["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    path.unlink()
    pod = pod_of(name)
    if pod is not None and "code" not in pod:
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.Popen([sys.executable, "-c", END, str(pod["pid"]), str(grace)], start_new_session=True, **quiet)


def main() -> None:
    for folder in (JOBS, PODS):
        folder.mkdir(parents=True, exist_ok=True)
    if ERROR.exists():
        fail(ERROR.read_text())
    words = [word for word in sys.argv[1:] if not word.startswith(("--context=", "--namespace="))]
    with (FOLDER / "calls").open("a") as calls:
        calls.write(" ".join(sys.argv[1:]) + "\n")
    match words:
        case ["create", "-f", "-"]:
            create(sys.stdin.read())
        case ["get", "job", name, "--ignore-not-found", "--output=json"]:
            get_job(name)
        case ["get", "pods", selector, "--ignore-not-found", "--output=json"]:
            get_pods(selector)
        case ["delete", "job", name, "--ignore-not-found", "--wait=false"]:
            delete(name)
        case _:
            fail(f"error: unknown command {words}")


if __name__ == "__main__":
    main()
