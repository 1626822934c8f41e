"""Stages as Kubernetes jobs, through a kubectl that keeps jobs and pods like the real one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.support.small_project import ROOT, SmallProject
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

STAGE = ("-m", "lexmill.stages.train", "toy")


class Cluster:
    """The state of the fake cluster, and a project whose trainings go there."""

    def __init__(self, project: SmallProject, folder: Path) -> None:
        self.project, self.state = project, folder / "state"
        self.state.mkdir()
        tool = folder / "bin" / "kubectl"
        tool.parent.mkdir()
        tool.write_text(
            f"#!{sys.executable}\nimport runpy\nrunpy.run_module('tests.support.fake_kubectl', run_name='__main__')\n"
        )
        tool.chmod(0o755)
        project.environment |= {
            "PATH": f"{tool.parent}{os.pathsep}{project.environment['PATH']}",
            "KUBE_STATE": str(self.state),
        }
        template = yaml.safe_load((ROOT / "infra" / "kubernetes" / "stage-job.yaml").read_text())
        template["spec"]["template"]["spec"]["containers"][0]["workingDir"] = str(project.root)
        (project.root / "job.yaml").write_text(yaml.safe_dump(template))
        self.place(cpus=1, memory="1 GiB", time="10 minutes")

    def place(self, *, steps: int = 8, **resources: Any) -> None:
        self.project.write_params(steps=steps)
        self.project.write_execution(
            checkpoint_seconds=0,
            poll_seconds=0.2,
            orphan_time="5 seconds",
            stages={"train": {"launcher": "kubernetes", **resources}},
            kubernetes={"template": "job.yaml", "namespace": "models"},
        )

    def jobs(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((self.state / "jobs").glob("*.json"))]

    def running(self) -> list[int]:
        pods = [json.loads(path.read_text() or "{}") for path in (self.state / "pods").glob("*.json")]
        return [pod["pid"] for pod in pods if "pid" in pod and "code" not in pod and psutil.pid_exists(pod["pid"])]

    def newest_step(self) -> int:
        marks = (self.project.root / ".lexmill" / "checkpoints").glob("train-toy-*/step-*/COMPLETE")
        return max((int(mark.parent.name.removeprefix("step-")) for mark in marks), default=0)


@pytest.fixture
def cluster(encoded: SmallProject, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(encoded.copy(tmp_path / "a project"), tmp_path)
    yield cluster
    for pid in cluster.running():
        os.kill(pid, signal.SIGKILL)


def test_a_job_makes_what_dvc_records(cluster: Cluster) -> None:
    said = cluster.project.run("-m", "dvc", "repro", "train")
    assert "train toy: valid loss" in said
    assert "train@toy" in cluster.project.outputs()
    (job,) = cluster.jobs()
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert job["spec"]["activeDeadlineSeconds"] == 600
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "1024Mi"}
    names = {one["name"] for one in container["env"]}
    assert {"LEXMILL_JOB", "DVC_STAGE", "HOME"} <= names
    assert not names & {"PATH", "PYTHONPATH"}
    calls = (cluster.state / "calls").read_text().split("\n")
    assert all(call.startswith("--namespace=models ") for call in calls if call)


def test_the_stages_own_code_and_sentence_come_back(cluster: Cluster) -> None:
    shutil.rmtree(cluster.project.root / "artifacts" / "tokens")
    said = cluster.project.run(*STAGE, code=2)
    assert said.count("there are no token shards here") == 1
    assert "Traceback" not in said


def test_a_stop_deletes_the_job_after_it_has_saved(cluster: Cluster) -> None:
    cluster.place(steps=100_000)
    with cluster.project.start(*STAGE) as process:
        wait_for(lambda: cluster.newest_step() >= 3)
        process.terminate()
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 143, said
    assert cluster.jobs() == []
    wait_for(lambda: cluster.running() == [])
    (status,) = (cluster.project.root / ".lexmill" / "jobs").rglob("status.json")
    assert json.loads(status.read_text())["code"] == 143


def test_a_job_nobody_waits_for_ends_itself(cluster: Cluster) -> None:
    cluster.place(steps=100_000)
    with cluster.project.start(*STAGE) as process:
        wait_for(lambda: cluster.newest_step() >= 3)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    wait_for(lambda: cluster.running() == [])
    (pod,) = [json.loads(path.read_text()) for path in (cluster.state / "pods").glob("*.json")]
    assert pod["code"] == 75


def test_a_pod_that_is_killed_is_reported(cluster: Cluster) -> None:
    cluster.place(steps=100_000)
    with cluster.project.start(*STAGE) as process:
        wait_for(lambda: cluster.newest_step() >= 3)
        os.kill(cluster.running()[0], signal.SIGKILL)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert "needed more memory than it had; raise `memory` of this stage" in said


def test_what_the_cluster_refuses_or_does_not_answer_is_reported(cluster: Cluster) -> None:
    error = cluster.state / "error"
    error.write_text('Error from server (Forbidden): jobs.batch is forbidden: User "x" cannot create resource "jobs"')
    assert "Kubernetes refuses it: Error from server (Forbidden)" in cluster.project.run(*STAGE, code=2)
    error.write_text(
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?"
    )
    assert "Kubernetes does not answer" in cluster.project.run(*STAGE, code=75)
    error.unlink()
    (cluster.project.root / "job.yaml").write_text("kind: Job\n")
    assert "it must be a Job with a container whose workingDir is the workspace" in cluster.project.run(*STAGE, code=2)
