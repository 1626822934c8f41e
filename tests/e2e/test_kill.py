"""`kill -9` at a random step of a training under `dvc repro`, then the same command: an undisturbed run's result."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import yaml

from lexmill.base.storage import sha256_folder
from tests.e2e.conftest import Project

pytestmark = pytest.mark.e2e

STEPS = 150
EVERY_STEP = "accelerator: cpu\nthreads: 1\ncheckpoint_seconds: 0\npublish: false\n"


@pytest.fixture
def training(project: Project, tmp_path: Path) -> Project:
    """A copy of the smoke workspace that has to train its GPT, dropout on, for more steps."""
    root = tmp_path / "a project"
    shutil.copytree(project.root, root, symlinks=True)
    copy = Project(root, {})
    (tmp_path / "every-step.yaml").write_text(EVERY_STEP)
    copy.environment["LEXMILL_EXECUTION"] = str(tmp_path / "every-step.yaml")
    params = yaml.safe_load((root / "params.yaml").read_text())
    gpt = params["models"]["gpt"]
    assert gpt["shape"]["dropout"] == 0.1
    gpt["recipe"]["length"] = f"{STEPS} steps"
    (root / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    return copy


def newest_step(root: Path) -> int:
    """The step of this training's newest complete checkpoint, 0 without one (other models keep theirs beside it)."""
    steps = [0]
    for folder in (root / ".lexmill" / "checkpoints").glob("train-gpt-*"):
        # Listed by name: a folder that is removed meanwhile must not end the search.
        steps += [
            int(name.removeprefix("step-")) for name in os.listdir(folder) if (folder / name / "COMPLETE").exists()
        ]
    return max(steps)


def result(root: Path) -> dict[str, str]:
    return {
        "model": sha256_folder(root / "artifacts" / "models" / "gpt"),
        "curve": (root / "reports" / "curves" / "gpt.csv").read_text(),
        "metrics": json.dumps(json.loads((root / "metrics" / "train" / "gpt.json").read_text())),
    }


def test_a_killed_training_goes_on_to_the_same_bits(training: Project) -> None:
    training.run("-m", "dvc", "repro", "-s", "train@gpt")
    undisturbed = result(training.root)
    shutil.rmtree(training.root / "artifacts" / "models" / "gpt")
    lock = (training.root / "dvc.lock").read_bytes()

    kill_at = random.Random(os.getpid()).randrange(5, STEPS - 20)
    process = training.start("-m", "dvc", "repro", "-s", "--force", "--no-run-cache", "train@gpt")
    deadline = time.monotonic() + 300
    while newest_step(training.root) < kill_at:
        assert process.poll() is None, f"ended before step {kill_at}: {process.communicate()}"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    reached = newest_step(training.root)
    assert kill_at <= reached < STEPS
    assert not (training.root / "artifacts" / "models" / "gpt").exists()
    assert (training.root / "dvc.lock").read_bytes() == lock, "a killed stage is not recorded"

    again = training.run("-m", "dvc", "repro", "-s", "--force", "--no-run-cache", "train@gpt")
    assert "resumes after step" in again.stdout + again.stderr
    assert result(training.root) == undisturbed
    assert not list((training.root / ".lexmill" / "checkpoints").glob("train-gpt-*/step-*"))
