"""The torchrun launcher: two processes of this machine train one model, and end together."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.small_project import SmallProject
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

STAGE = ("-m", "lexmill.stages.pretrain", "toy")
ON_TORCHRUN = {"strategy": "ddp", "devices": 2, "stages": {"pretrain": {"launcher": "torchrun"}}}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, encoded: SmallProject) -> SmallProject:
    return encoded.copy(tmp_path_factory.mktemp("torchrun") / "a project")


def metrics(project: SmallProject) -> dict[str, float]:
    found: dict[str, float] = json.loads((project.root / "metrics" / "pretrain" / "toy.json").read_text())
    return found


def ranks(root: Path) -> list[psutil.Process]:
    """The processes of the training in this workspace, torchrun's own not counted."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if "lexmill.stages.pretrain" in words and "torch.distributed.run" not in words:
                inside = process.cwd() == str(root) and "LOCAL_RANK" in process.environ()
                found += [process] if inside else []
        except (psutil.Error, OSError):
            continue
    return found


def newest_step(root: Path) -> int:
    """The step of the newest whole checkpoint, 0 without one."""
    marks = (root / ".lexmill" / "checkpoints").glob("pretrain-toy-*/step-*/COMPLETE")
    return max((int(mark.parent.name.removeprefix("step-")) for mark in marks), default=0)


def test_two_processes_learn_what_one_learns(project: SmallProject) -> None:
    project.write_execution()
    project.run(*STAGE)
    alone = metrics(project)
    project.write_execution(**ON_TORCHRUN)
    said = project.run(*STAGE)
    assert said.count("pretrain toy: valid loss") == 1, said
    assert metrics(project)["tokens"] == alone["tokens"]
    assert metrics(project)["valid_loss"] == pytest.approx(alone["valid_loss"], rel=0.05)  # other dropout


def test_a_lost_process_ends_the_group_and_the_next_run_goes_on(project: SmallProject) -> None:
    project.write_params(steps=100_000)
    project.write_execution(**ON_TORCHRUN, checkpoint_seconds=0)
    with project.start(*STAGE) as process:
        wait_for(lambda: newest_step(project.root) and len(ranks(project.root)) == 2)
        ranks(project.root)[0].kill()
        said, _ = process.communicate(timeout=120)
    assert process.returncode != 0, said
    wait_for(lambda: not ranks(project.root))
    reached = newest_step(project.root)
    with project.start(*STAGE) as process:
        wait_for(lambda: newest_step(project.root) > reached)
        assert len(ranks(project.root)) == 2
        os.kill(process.pid, signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 143, said
    assert "goes on after step" in said
    wait_for(lambda: not ranks(project.root))
