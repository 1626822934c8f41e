"""Stages as jobs of a real Slurm: submitted by the stage's own command, preempted, requeued, resumed, cancelled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.missing import needs
from tests.services.slurm_cluster import Cluster
from tests.support.small_project import ROOT, SmallProject
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.services, needs("slurm-wlm"), needs("munge")]

STAGE = ("-m", "lexmill.stages.train", "toy")
ON_SLURM: dict[str, Any] = {
    "checkpoint_seconds": 0,
    "poll_seconds": 0.3,
    "orphan_time": "5 seconds",
    "stages": {"train": {"launcher": "slurm"}},
    "slurm": {"script": str(ROOT / "infra" / "slurm" / "stage.sbatch")},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as started:
        yield started


@pytest.fixture
def project(encoded: SmallProject, cluster: Cluster, tmp_path: Path) -> Iterator[SmallProject]:
    yield encoded.copy(tmp_path / "a 100% project", **cluster.environment)
    cluster.ask("scancel", f"--user={os.environ.get('USER', 'root')}")


def jobs(cluster: Cluster) -> list[list[str]]:
    """[id, state] of each job that has not ended."""
    return [line.split() for line in cluster.ask("squeue", "--noheader", "--format=%i %T").splitlines()]


def newest_step(project: SmallProject) -> int:
    marks = (project.root / ".lexmill" / "checkpoints").glob("train-toy-*/step-*/COMPLETE")
    return max((int(mark.parent.name.removeprefix("step-")) for mark in marks), default=0)


def results(project: SmallProject) -> dict[str, bytes]:
    found = [path for place in ("artifacts/models", "metrics", "reports") for path in (project.root / place).rglob("*")]
    return {path.relative_to(project.root).as_posix(): path.read_bytes() for path in found if path.is_file()}


def ended(process: subprocess.Popen[str], cluster: Cluster, code: int = 0) -> str:
    said, _ = process.communicate(timeout=180)
    assert process.returncode == code, f"{said}\n{cluster.log()}"
    return said


def test_dvc_records_what_a_job_made_and_its_log_is_streamed(project: SmallProject, cluster: Cluster) -> None:
    project.write_execution()
    project.run("-m", "dvc", "repro", "-q")
    here = project.outputs()
    model = results(project)
    shutil.rmtree(project.root / "artifacts" / "models")
    project.write_execution(**ON_SLURM)
    said = project.run("-m", "dvc", "repro", "-s", "-f", "--no-run-cache", "train")
    assert "train@toy: slurm job " in said
    assert "train toy: valid loss" in said
    assert project.outputs() == here
    assert results(project) == model
    assert jobs(cluster) == []
    assert not list((project.root / ".lexmill" / "jobs").rglob("job.json"))


def test_the_stages_own_code_and_sentence_come_back(project: SmallProject, cluster: Cluster) -> None:
    project.write_execution(**ON_SLURM)
    shutil.rmtree(project.root / "artifacts" / "tokens")
    said = project.run(*STAGE, code=2)
    assert said.count("there are no token shards here") == 1, said
    assert "Traceback" not in said
    status = json.loads((project.root / ".lexmill" / "status" / "train@toy.json").read_text())
    assert status["code"] == 2
    assert "there are no token shards here" in status["message"]


def test_preempted_and_requeued_in_mid_training_it_makes_the_same_bits(project: SmallProject, cluster: Cluster) -> None:
    project.write_params(steps=200)
    project.write_execution()
    project.run(*STAGE)
    undisturbed = results(project)
    shutil.rmtree(project.root / "artifacts" / "models")
    project.write_execution(**ON_SLURM)
    with project.start(*STAGE) as process:
        wait_for(lambda: newest_step(project) >= 5)
        # A job of more weight takes the only core: Slurm sends SIGTERM, waits, and puts the training back.
        urgent = cluster.ask("sbatch", "--parsable", "--partition=urgent", "--output=/dev/null", "--wrap=sleep 2")
        wait_for(lambda: [urgent, "RUNNING"] in jobs(cluster))
        first_stop = newest_step(project)
        assert 5 <= first_stop < 200
        # Back in the queue, it starts again; now somebody requeues it by hand.
        wait_for(lambda: newest_step(project) > first_stop + 5)
        (job,) = [job for job, state in jobs(cluster) if state == "RUNNING"]
        cluster.ask("scontrol", "requeue", job)
        said = ended(process, cluster)
    assert said.count("resumes after step") == 2, said
    assert f"slurm job {job} waits: pending" in said
    assert results(project) == undisturbed


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ending_the_stage_cancels_its_job(project: SmallProject, cluster: Cluster, number: int, code: int) -> None:
    project.write_params(steps=100_000)
    project.write_execution(**ON_SLURM)
    with project.start(*STAGE) as process:
        wait_for(lambda: newest_step(project) >= 3)
        process.send_signal(number)
        said = ended(process, cluster, code)
    assert "Traceback" not in said
    assert jobs(cluster) == []
    (status,) = (project.root / ".lexmill" / "jobs").rglob("status.json")
    assert json.loads(status.read_text())["code"] == 143  # it saved, and was not put back


def test_a_job_nobody_waits_for_ends_and_the_next_run_goes_on(project: SmallProject, cluster: Cluster) -> None:
    project.write_params(steps=100_000)
    project.write_execution(**ON_SLURM)
    with project.start(*STAGE) as process:
        wait_for(lambda: newest_step(project) >= 3)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    wait_for(lambda: jobs(cluster) == [])
    reached = newest_step(project)
    with project.start(*STAGE) as process:
        wait_for(lambda: newest_step(project) > reached)
        os.killpg(process.pid, signal.SIGKILL)  # at once again: now the next run ends the job first
        process.communicate()
    assert jobs(cluster)
    project.write_params(steps=8)
    said = project.run(*STAGE)
    assert "of a run that was killed is ended first" in said
    assert jobs(cluster) == []


def test_what_slurm_refuses_or_somebody_cancels_is_reported(project: SmallProject, cluster: Cluster) -> None:
    project.write_execution(**ON_SLURM | {"slurm": ON_SLURM["slurm"] | {"partition": "nowhere"}})
    said = project.run(*STAGE, code=2)
    assert "Slurm refuses it: " in said
    assert "invalid partition" in said
    project.write_params(steps=100_000)
    project.write_execution(**ON_SLURM)
    for steps in (0, 3):  # before its stage has begun, and in mid-training: Slurm never puts it back
        with project.start(*STAGE) as process:
            wait_for(lambda at_least=steps: jobs(cluster) and newest_step(project) >= at_least)
            cluster.ask("scancel", jobs(cluster)[0][0])
            said, _ = process.communicate(timeout=120)
        assert process.returncode in (75, 143), said
        assert "slurm job" in said
        assert "pending, BeginTime" not in said
        wait_for(lambda: jobs(cluster) == [])
    unknown = project.run(*STAGE, code=75, SLURM_CONF=str(silent(cluster, project.root)))
    assert "Slurm does not answer" in unknown


def silent(cluster: Cluster, folder: Path) -> Path:
    """The cluster's configuration with a port at which nobody answers."""
    text = (cluster.root / "slurm.conf").read_text()
    lines = ["SlurmctldPort=1" if line.startswith("SlurmctldPort") else line for line in text.split("\n")]
    path = folder / "silent.conf"
    path.write_text("\n".join([*lines, "MessageTimeout=2"]))
    return path


def metrics_of_one_process(project: SmallProject) -> dict[str, float]:
    """Of eight steps without dropout, made here; the model is gone again."""
    project.write_params(steps=8, dropout=0)
    project.write_execution()
    project.run(*STAGE)
    shutil.rmtree(project.root / "artifacts" / "models")
    return project.metrics()


def test_several_processes_are_started_by_torchrun(project: SmallProject, cluster: Cluster) -> None:
    alone = metrics_of_one_process(project)
    project.write_execution(**ON_SLURM, strategy="ddp", devices=2)
    said = project.run(*STAGE)
    assert said.count("train toy: valid loss") == 1, said
    assert any(name.endswith(".safetensors") for name in results(project))
    assert project.metrics()["tokens"] == alone["tokens"]
    assert project.metrics()["valid_loss"] == pytest.approx(alone["valid_loss"], rel=1e-4)


def test_a_training_on_two_nodes_learns_what_one_process_learns(encoded: SmallProject, tmp_path: Path) -> None:
    with Cluster(nodes=2) as cluster:
        project = encoded.copy(tmp_path / "a project", GLOO_SOCKET_IFNAME="lo", **cluster.environment)
        alone = metrics_of_one_process(project)
        project.write_execution(**ON_SLURM, strategy="ddp", nodes=2)
        with project.start(*STAGE) as process:
            wait_for(lambda: any(state == "RUNNING" for _, state in jobs(cluster)))
            assert cluster.ask("squeue", "--noheader", "--format=%D") == "2"
            said = ended(process, cluster)
        assert said.count("train toy: valid loss") == 1, said
        assert any(name.endswith(".safetensors") for name in results(project))
        assert project.metrics()["tokens"] == alone["tokens"]
        assert project.metrics()["valid_loss"] == pytest.approx(alone["valid_loss"], rel=1e-4)
