"""The torchrun launcher: two processes of this machine train one model, and end together."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from lexmill.commands.servers import free_port
from lexmill.compute.group import code_of
from tests.support.small_project import ROOT, SmallProject
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

STAGE = ("-m", "lexmill.stages.train", "toy")
SCRIPT = ROOT / "infra" / "torchrun" / "stage.sh"
ON_TORCHRUN = {"strategy": "ddp", "devices": 2, "stages": {"train": {"launcher": "torchrun"}}}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, encoded: SmallProject) -> SmallProject:
    return encoded.copy(tmp_path_factory.mktemp("torchrun") / "a project")


def ranks(root: Path) -> list[psutil.Process]:
    """The processes of the training in this workspace, torchrun's own not counted."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if "lexmill.stages.train" in words and "torch.distributed.run" not in words:
                inside = process.cwd() == str(root) and "LOCAL_RANK" in process.environ()
                found += [process] if inside else []
        except (psutil.Error, OSError):
            continue
    return found


def newest_step(root: Path) -> int:
    """The step of the newest whole checkpoint, 0 without one."""
    marks = (root / ".lexmill" / "checkpoints").glob("train-toy-*/step-*/COMPLETE")
    return max((int(mark.parent.name.removeprefix("step-")) for mark in marks), default=0)


def test_two_processes_learn_what_one_learns_and_their_error_comes_back(project: SmallProject) -> None:
    project.write_params(steps=8, dropout=0)
    project.write_execution()
    project.run(*STAGE)
    alone = project.metrics()
    project.write_execution(**ON_TORCHRUN)
    said = project.run(*STAGE)
    assert said.count("train toy: valid loss") == 1, said
    assert project.metrics()["tokens"] == alone["tokens"]
    assert project.metrics()["valid_loss"] == pytest.approx(alone["valid_loss"], rel=1e-4)
    tokens = project.root / "artifacts" / "tokens"
    tokens.rename(tokens.with_name("away"))
    said = project.run(*STAGE, code=2)
    assert "there are no token shards here" in said
    assert "Traceback" not in said
    status = project.status()
    assert status["code"] == 2
    assert "there are no token shards here" in status["message"]
    tokens.with_name("away").rename(tokens)


def failures(*ends: tuple[int, int]) -> list[ProcessFailure]:
    """What torchrun notes of processes with these (exit codes, seconds)."""
    found = []
    for code, second in ends:
        found.append(ProcessFailure(local_rank=0, pid=1, exitcode=code, error_file=""))
        found[-1].timestamp = second
    return found


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ([(-9, 5)], 75),
        ([(1, 5), (-9, 6)], 75),  # the other heard of the broken connection first
        ([(1, 5), (-9, 35)], 1),  # a bug; the other hung, and torchrun killed it
        ([(143, 5), (-9, 5)], 75),
        ([(-11, 5), (143, 5)], 1),
        ([(2, 5), (143, 6)], 2),
        ([(75, 5), (75, 5)], 75),
        ([(75, 5), (1, 5)], 1),  # the first saw only that the other was gone
        ([(2, 5), (-15, 5)], 2),
        ([(143, 5), (143, 5)], 143),
        ([(1, 5), (2, 6)], 1),
    ],
)
def test_why_a_group_of_processes_ended(ends: list[tuple[int, int]], code: int) -> None:
    assert code_of(failures(*ends)) == code


def test_a_lost_process_ends_the_group_and_the_next_run_goes_on(project: SmallProject) -> None:
    project.write_params(steps=100_000)
    project.write_execution(**ON_TORCHRUN, checkpoint_seconds=0)
    with project.start(*STAGE) as process:
        wait_for(lambda: newest_step(project.root) and len(ranks(project.root)) == 2)
        # Not the first one, which leaves a word of its own: a broken connection, or that it was ended.
        next(one for one in ranks(project.root) if one.environ()["RANK"] == "1").kill()
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 75, said
    assert "another process of this training ended" in said
    assert "Traceback" not in said
    wait_for(lambda: not ranks(project.root))
    assert project.status()["code"] == 75
    reached = newest_step(project.root)
    with project.start(*STAGE) as process:
        wait_for(lambda: newest_step(project.root) > reached)
        assert len(ranks(project.root)) == 2
        os.kill(process.pid, signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 143, said
    assert "resumes after step" in said
    wait_for(lambda: not ranks(project.root))


def test_two_machines_without_a_cluster_learn_what_one_process_learns(project: SmallProject, tmp_path: Path) -> None:
    """Each in a copy of the workspace, so that it shows who writes what; the checkpoints they share."""
    project.write_params(steps=8, dropout=0)
    project.write_execution()
    first = project.copy(tmp_path / "first")
    first.run(*STAGE)
    alone = first.metrics()
    (first.root / "metrics" / "train" / "toy.json").unlink()
    shutil.rmtree(first.root / "artifacts" / "models")
    first.write_execution(nodes=2, strategy="ddp", checkpoint_root=str(tmp_path / "checkpoints"))
    said = first.run(*STAGE, code=2)
    assert said.startswith(
        "nodes: 2, but the training was started on this machine alone; start infra/torchrun/stage.sh on each"
    )
    second = first.copy(tmp_path / "second")
    before = files(second.root)
    first_listens = f"127.0.0.1:{free_port()}"
    machines = [
        subprocess.Popen(
            [str(SCRIPT), "2", str(rank), first_listens, "1", *STAGE],
            cwd=one.root,
            env={**one.environment, "LEXMILL_PYTHON": sys.executable, "GLOO_SOCKET_IFNAME": "lo"},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank, one in enumerate((first, second))
    ]
    try:
        said = [machine.communicate(timeout=240)[0] for machine in machines]
    finally:
        for machine in machines:
            machine.terminate()  # torchrun ends its processes
            machine.wait(60)
    assert [machine.returncode for machine in machines] == [0, 0], said
    assert [words.count("train toy: valid loss") for words in said] == [1, 0], said
    assert first.metrics()["tokens"] == alone["tokens"]
    assert first.metrics()["valid_loss"] == pytest.approx(alone["valid_loss"], rel=1e-4)
    assert list((first.root / "artifacts" / "models").rglob("*.safetensors"))
    assert files(second.root) == before


def files(root: Path) -> set[str]:
    """What lies in a workspace, without what says nothing of its results."""
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in found if "__pycache__" not in path.parts}
