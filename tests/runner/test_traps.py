"""What bit those who tried DVC with stages like ours before us; each line here is one trap that was met."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.small_project import ROOT, SmallProject

STAGES: dict[str, Any] = {
    name: stage.get("do", stage)
    for name, stage in yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"].items()
}


def paths(stage: dict[str, Any], kind: str) -> list[str]:
    return [next(iter(entry)) if isinstance(entry, dict) else entry for entry in stage.get(kind, [])]


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_depends_on_the_folder_above_other_stages_cached_outputs(stage: str) -> None:
    """Its hash would include a .gitignore that DVC writes, and in a fresh clone the stage would run on nothing."""
    cached = [path for other in STAGES.values() for kind in ("outs", "plots") for path in paths(other, kind)]
    for dependency in paths(STAGES[stage], "deps"):
        assert [path for path in cached if path.startswith(f"{dependency}/")] == []


@pytest.mark.parametrize("stage", STAGES)
def test_no_output_outlives_a_change_of_its_params(stage: str) -> None:
    """`persist: true` is never taken from the run cache and keeps another choice's checkpoints."""
    entries = [entry for kind in ("outs", "metrics", "plots") for entry in STAGES[stage].get(kind, [])]
    options = [value for entry in entries if isinstance(entry, dict) for value in entry.values()]
    assert not any(option.get("persist") for option in options)
    assert not any(path.startswith((".lexmill", "mlruns", "mlflow")) for path in paths(STAGES[stage], "outs"))


def test_bytecode_is_no_input_and_dvc_reports_to_nobody() -> None:
    assert "__pycache__" in (ROOT / ".dvcignore").read_text().split()
    assert "analytics = false" in (ROOT / ".dvc" / "config").read_text()


def test_stages_side_by_side_wait_for_dvcs_lock(project: Any) -> None:
    """Without --wait-for-lock before `repro` a fifth of them failed."""
    for number in range(6):
        project.stage(f"stage_{number}", f"write('{number}')")
    session = project.run(jobs=3)
    assert session.code == 0
    assert {outcome.state for outcome in session.outcomes.values()} == {"ran"}
    assert project.run().plan.todo == ()


@pytest.mark.e2e
def test_a_training_ended_by_sigterm_is_not_recorded_as_done(tmp_path: Path) -> None:
    """Lightning leaves with 0 after SIGTERM, and DVC would keep the half-trained model."""
    project = SmallProject(tmp_path / "a project", steps=100_000, checkpoint_seconds=0)
    with project.start("-m", "dvc", "repro") as dvc:
        marks = project.root / ".lexmill" / "checkpoints"
        deadline = time.monotonic() + 120
        while not list(marks.glob("pretrain-toy-*/step-*/COMPLETE")):
            assert time.monotonic() < deadline
            assert dvc.poll() is None
            time.sleep(0.1)
        os.killpg(dvc.pid, signal.SIGTERM)
        said, _ = dvc.communicate(timeout=120)
    assert dvc.returncode != 0, said
    assert "pretrain@toy" not in project.outputs()
    assert not (project.root / "artifacts" / "models" / "toy").exists()
    project.write_params(steps=8)
    project.run("-m", "dvc", "repro")
    assert "pretrain@toy" in project.outputs()
