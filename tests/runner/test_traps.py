"""What bit those who tried DVC with stages like ours before us; each line here is one trap that was met."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base import workspace
from lexmill.base.errors import EXIT_RETRY, EXIT_USER, RetryableError
from lexmill.runner import graph, leftovers, mending, supervised
from lexmill.runner.display import Display
from lexmill.runner.session import open_session, run_all
from tests.support.small_project import ROOT, SmallProject
from tests.support.waiting import wait_for

STAGES: dict[str, Any] = {
    name: stage.get("do", stage)
    for name, stage in yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"].items()
}


FREE = {key: value for key, value in os.environ.items() if key != workspace.TOKEN_VARIABLE}


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


def test_stages_side_by_side_wait_for_dvcs_lock(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --wait-for-lock a fifth of them failed; after `repro` DVC does not know it."""
    commands: list[list[str]] = []

    class Noting(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], *more: Any, **options: Any) -> None:
            commands.append(command)
            super().__init__(command, *more, **options)

    monkeypatch.setattr(subprocess, "Popen", Noting)
    for number in range(6):
        project.stage(f"stage_{number}", f"write('{number}')")
    session = project.run(jobs=3)
    assert session.code == 0
    assert {outcome.state for outcome in session.outcomes.values()} == {"ran"}
    assert project.run().plan.todo == ()
    ran = [command for command in commands if "repro" in command]
    assert len(ran) == 6
    assert all(command[command.index("dvc") + 1 :][:2] == ["--wait-for-lock", "repro"] for command in ran)


def test_a_path_that_another_dvc_holds_is_worth_another_try(
    project: Any, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    """DVC waits for its lock, but not for a path: "is busy", and 255."""
    project.stage("one", "write('1')")
    holder = spawn([sys.executable, "-c", "import time; time.sleep(600)", "repro"])
    held = project.root / ".dvc" / "tmp" / "rwlock"
    held.parent.mkdir(exist_ok=True)
    entry = {"pid": holder.pid, "cmd": "dvc repro"}
    with open_session(root=project.root, display=Display()) as session:
        held.write_text(json.dumps({"write": {str(project.root / "one.out"): entry}, "read": {}}))
        run_all(session)
    (outcome,) = session.outcomes.values()
    assert (session.code, outcome.code, outcome.state) == (EXIT_RETRY, EXIT_RETRY, "failed"), outcome.message
    assert "one.out' is busy" in outcome.message
    with pytest.raises(RetryableError, match=r"another DVC process is at work here; .*one\.out' is busy"):
        project.run()
    holder.kill()
    holder.wait()
    assert project.run().code == 0


def test_a_workspace_is_held_also_by_a_process_that_nobody_here_can_see(
    tmp_path: Path, spawn: Callable[..., subprocess.Popen[str]]
) -> None:
    """DVC's locks go by process id, which means nothing in another container; ours is the kernel's, on the file."""
    hold = """
import sys
from lexmill.base import workspace
with workspace.run_lock("a run in a container"):
    print("held", flush=True)
    sys.stdin.read()
"""
    other = spawn([sys.executable, "-c", hold], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=FREE)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    lock = tmp_path / workspace.HOME / "run.lock"
    holder = json.loads(lock.read_text())
    ended = spawn([sys.executable, "-c", ""])
    ended.wait()
    lock.write_text(json.dumps({**holder, "pid": ended.pid}))  # as its own namespace counts: here it is nobody's
    output = rf"in use by .* \(process {ended.pid} on"
    with pytest.raises(RetryableError, match=output), workspace.run_lock(root=tmp_path, wait_seconds=0):
        pass
    with pytest.raises(RetryableError, match=output), workspace.stage_guard("encode@x", tmp_path, wait_seconds=0):
        pass
    assert workspace.held_by(tmp_path) == holder["token"]
    other.kill()
    other.wait()
    with workspace.run_lock(root=tmp_path):
        pass


@pytest.mark.e2e
def test_a_training_ended_by_sigterm_is_not_recorded_as_done(encoded: SmallProject, tmp_path: Path) -> None:
    """A training that left with 0 after SIGTERM would leave DVC with a half-trained model."""
    project = encoded.copy(tmp_path / "a project")
    project.write_params(steps=100_000)
    project.write_execution(checkpoint_seconds=0)
    with project.start("-m", "dvc", "repro") as dvc:
        marks = project.root / ".lexmill" / "checkpoints"
        wait_for(lambda: list(marks.glob("train-toy-*/step-*/COMPLETE")), alive=dvc)
        os.killpg(dvc.pid, signal.SIGTERM)
        said, _ = dvc.communicate(timeout=120)
    assert dvc.returncode != 0, said
    assert "train@toy" not in project.outputs()
    assert not (project.root / "artifacts" / "models" / "toy").exists()
    project.write_params(steps=8)
    project.run("-m", "dvc", "repro")
    assert "train@toy" in project.outputs()


IN_A_SLURM_JOB = """
from lexmill.compute import execution
from lexmill.stages import entry
entry.preflight = execution.Execution
def main(key):
    from lightning_fabric.plugins.environments import SLURMEnvironment
    print(SLURMEnvironment.detect())
entry.run_stage(main)
"""


def test_lightning_is_no_task_of_slurms_in_somebodys_own_job(tmp_path: Path) -> None:
    """It would leave it to Slurm to start the other processes of the training."""
    (tmp_path / "own.py").write_text(IN_A_SLURM_JOB, encoding="utf-8")
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "mine", "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "1"}
    done = subprocess.run(
        [sys.executable, "own.py", "key"], cwd=tmp_path, env=FREE | job, capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "noise": lambda data: data[:3000] + bytes(i * 7 % 251 for i in range(len(data) - 3000)),
    "no database": lambda data: b"x" * len(data),
}


def hash_caches() -> list[Path]:
    return sorted(Path(os.environ["DVC_SITE_CACHE_DIR"]).rglob("cache.db"))


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_caches_of_hashes_are_made_anew(project: Any, how: str) -> None:
    """DVC keeps them in SQLite, and ends in a traceback for ever where one is damaged."""
    project.stage("one", "write('1')")
    project.run()
    assert len(hash_caches()) == 2
    for path in hash_caches():
        path.write_bytes(DAMAGES[how](path.read_bytes()))
    assert mending.damaged_caches(project.root) == hash_caches()
    project.stage("one", "write('2')")
    assert project.run().code == 0
    assert project.text("one") == "2"
    assert mending.damaged_caches(project.root) == []


def test_doctor_removes_damaged_caches_of_hashes(project: Any) -> None:
    project.stage("one", "write('1')")
    project.run()
    assert list(leftovers.damaged_hashes(project.root)) == []
    path = hash_caches()[0]
    path.write_bytes(b"x" * 5000)
    (finding,) = leftovers.damaged_hashes(project.root)
    assert str(path) in finding.what
    finding.fix()
    assert not path.exists()


def test_a_disk_that_dvc_finds_full_is_worth_another_try(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """DVC reports a full disk by SQLite's words."""
    full = "database or disk is full"
    code, message = supervised._from_text(255, [f"ERROR: unexpected error - {full}"])
    assert (code, message.split(";")[0]) == (EXIT_RETRY, "the disk is full or does not answer")
    assert supervised._from_text(255, ["ERROR: unexpected error - disk I/O error"])[0] == EXIT_RETRY
    code, message = supervised._from_text(255, ["ERROR: unexpected error - database disk image is malformed"])
    assert (code, "`lexmill doctor --fix`" in message) == (EXIT_USER, True)

    def fail(*_: object) -> None:
        raise sqlite3.OperationalError(full)

    monkeypatch.setattr(graph, "_read", fail)
    with pytest.raises(RetryableError, match=full):
        graph.read(project.root)


def test_a_restored_output_stands_alone(project: Any) -> None:
    """DVC brings it from its cache, and no writer removes what a killed one has left beside it."""
    project.stage("one", "write('1')")
    project.run()
    (project.root / "one.out").unlink()
    (project.root / "dvc.lock").unlink()
    left = project.root / ".one.out.4194305.tmp"  # beyond the largest process id
    left.mkdir()
    (left / "half").write_text("1")
    (outcome,) = project.run().outcomes.values()
    assert (outcome.state, project.text("one")) == ("restored", "1")
    assert not left.exists()
