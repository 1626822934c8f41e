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


def entries(stage: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    """(path, options) of each entry."""
    given = [entry if isinstance(entry, dict) else {entry: {}} for entry in stage.get(kind, [])]
    return [(path, options) for entry in given for path, options in entry.items()]


@pytest.mark.parametrize("stage", STAGES)
def test_a_folder_with_other_stages_cached_outputs_is_an_input_only_where_git_ignores_it_whole(stage: str) -> None:
    """Elsewhere DVC writes a .gitignore into it, which is hashed too, and a fresh clone runs the stage on nothing."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split("\n") if line.endswith("/")]
    cached = [
        path
        for other in STAGES.values()
        for kind in ("outs", "plots")
        for path, options in entries(other, kind)
        if options.get("cache", True)
    ]
    for dependency, _ in entries(STAGES[stage], "deps"):
        if dependency not in ignored:
            assert [path for path in cached if path.startswith(f"{dependency}/")] == []


@pytest.mark.parametrize("stage", STAGES)
def test_no_output_outlives_a_change_of_its_params(stage: str) -> None:
    """`persist: true` is never taken from the run cache and keeps another choice's checkpoints."""
    for kind in ("outs", "metrics", "plots"):
        for path, options in entries(STAGES[stage], kind):
            assert not options.get("persist")
            assert not path.startswith((".lexmill", "mlruns", "mlflow"))


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
