"""What died is found, reported in a sentence and put right; what a living process holds is left alone."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from lexmill.base.errors import RetryableError, UserError
from lexmill.base.storage import new_folder
from lexmill.base.workspace import mark_worktree, run_lock
from lexmill.commands import doctor as command
from lexmill.commands.doctor import doctor
from lexmill.runner import old_checkpoints as checkpoints
from lexmill.runner.record import unfinished
from tests.support.small_project import whole

DIES = (
    "import os, pathlib\n"
    "from lexmill.runner.graph import Plan, Stage\n"
    "from lexmill.runner.record import RunRecord\n"
    "plan = Plan((Stage('fetch@a', (), ('new',)),))\n"
    "record = RunRecord.start(pathlib.Path(), 'f' * 32, 'lexmill run', 'run', plan)\n"
    "record.begin('fetch@a')\n"
    "os.kill(os.getpid(), 9)\n"
)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "a workspace"
    (root / "conf/execution").mkdir(parents=True)
    (root / "conf/execution/local.yaml").write_text("publish: false\n")
    (root / "params.yaml").write_text(json.dumps(whole({"experiment": "x", "data_seed": 1, "training_seed": 1})))
    monkeypatch.chdir(root)
    monkeypatch.delenv("LEXMILL_EXECUTION", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def killed(script: str) -> None:
    """Run a script that kills itself."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def heard(capsys: pytest.CaptureFixture[str], code: int, *, fix: bool = False, checkpoints: bool = False) -> list[str]:
    assert doctor(fix=fix, remove_checkpoints=checkpoints) == code
    return capsys.readouterr().out.splitlines()


def test_a_workspace_in_order(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heard(capsys, 0) == ["all is well"]
    assert heard(capsys, 0, fix=True) == ["all is well"]


def test_a_run_that_was_killed_is_closed(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed(DIES)
    (line,) = heard(capsys, 2)
    assert line.startswith("the run 'lexmill run' of 2")
    assert ", at fetch@a, has died; `lexmill doctor --fix` closes its record" in line
    assert len(unfinished(workspace)) == 1
    assert heard(capsys, 0, fix=True)[0].startswith("repaired: the run 'lexmill run'")
    assert unfinished(workspace) == []
    assert heard(capsys, 0) == ["all is well"]


def test_half_written_files_of_the_dead_are_removed_and_those_of_the_living_stay(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(
        "import os\nfrom lexmill.base.storage import new_folder\n"
        "with new_folder('artifacts/models/gpt') as folder:\n"
        "    (folder / 'half').write_bytes(b'x' * 1000000)\n    os.kill(os.getpid(), 9)\n"
    )
    (workspace / f".sources.lock.yaml.{dead_pid()}.tmp").write_text("half")
    with new_folder("artifacts/models/lstm") as living:
        (line,) = heard(capsys, 2)
        assert line.startswith("2 half-written paths of dead processes (1.0 MB): .sources.lock.yaml.")
        assert "artifacts/models/.gpt." in line
        heard(capsys, 0, fix=True)
        assert living.is_dir()
    assert [path.name for path in (workspace / "artifacts/models").iterdir()] == ["lstm"]


def test_old_looks_of_the_download_cache(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = workspace.parent / "cache/lexmill/downloads"
    folder.mkdir(parents=True)
    for name, age in (("old", 90_000), ("new", 10)):
        path = folder / f".look-{name}.tmp"
        path.write_text("x")
        when = path.stat().st_mtime - age
        os.utime(path, (when, when))
    heard(capsys, 0, fix=True)
    assert [path.name for path in folder.iterdir()] == [".look-new.tmp"]


def test_paths_that_dvc_has_as_held_by_the_dead(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = workspace / ".dvc/tmp/rwlock"
    held.parent.mkdir(parents=True)
    mine = {"pid": os.getpid(), "cmd": " ".join(psutil.Process().cmdline())}
    gone = {"pid": dead_pid(), "cmd": "dvc repro"}
    held.write_text(json.dumps({"write": {"/a": gone, "/b": mine}, "read": {"/c": [gone, mine]}}))
    (line,) = heard(capsys, 2)
    assert line.startswith("DVC has paths as held by processes that are gone: /a, /c;")
    heard(capsys, 0, fix=True)
    assert json.loads(held.read_text()) == {"write": {"/b": mine}, "read": {"/c": [mine]}}


def test_a_server_that_is_gone_and_one_that_hangs(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = workspace / ".lexmill/servers"
    folder.mkdir(parents=True)
    (folder / "prefect.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": dead_pid()}))
    (folder / "mlflow.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": os.getpid()}))
    hangs, gone = heard(capsys, 2)
    assert hangs.startswith(
        f"the mlflow server (process {os.getpid()}) does not answer at http://127.0.0.1:9; look into"
    )
    assert gone.startswith(".lexmill/servers/prefect.json names a prefect server that is gone")
    assert heard(capsys, 2, fix=True)[0] == hangs
    assert [path.name for path in folder.iterdir()] == ["mlflow.json"]


def test_worktrees_whose_folders_are_gone(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=x", "-c", "user.email=x@localhost")
        return subprocess.run(["git", *identity, *words], check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    git("worktree", "add", "-q", "../gone")
    git("worktree", "add", "-q", "../there")
    shutil.rmtree("../gone")
    (line,) = heard(capsys, 2)
    assert line.startswith("git knows worktrees whose folders are gone: ")
    assert "there" not in line
    heard(capsys, 0, fix=True)
    assert "gone" not in git("worktree", "list")


def test_worktrees_of_runs_are_listed_and_the_dead_in_them_found(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("idle", "busy"):
        mark_worktree(workspace / ".lexmill/worktrees" / name, name, workspace)
    with run_lock(root=workspace / ".lexmill/worktrees/busy"):
        busy, idle, _ = heard(capsys, 0)
    assert busy == "worktree busy (0.0 MB): a run is active in it"
    assert idle == "worktree idle (0.0 MB): `git worktree remove --force .lexmill/worktrees/idle` removes it"
    killed(DIES.replace("pathlib.Path()", "pathlib.Path('.lexmill/worktrees/idle')"))
    assert "has died in the worktree idle; " in heard(capsys, 2)[0]
    assert heard(capsys, 0, fix=True)[0].endswith("has died in the worktree idle")


def checkpoint(root: Path, model: str, letter: str, **steps: str) -> Path:
    """Checkpoints of a training as they lie there: by step why each stays."""
    folder = root / f"{model}-{letter * 64}"
    for step, stays in steps.items():
        place = folder / step.replace("_", "-")
        place.mkdir(parents=True)
        (place / "weights.safetensors").write_bytes(b"x" * 1000)
        (place / "COMPLETE").write_text(json.dumps({"step": 1, "files": {}, "stays": stays}))
    return folder


def test_checkpoints_are_listed_and_removed_only_when_that_is_asked_for(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = workspace / ".lexmill/checkpoints"
    fork = checkpoint(root, "gpt", "a", step_00000010="fork", step_00000020="milestone")
    checkpoint(root, "gpt", "b", step_00000030="")
    newest = checkpoint(root, "gpt", "c", step_00000040="", step_00000050="")
    os.utime(newest / "step-00000050/COMPLETE", (2**32, 2**32))
    used = checkpoint(root, "lstm", "d", step_00000060="fork")
    half = newest / ".step-00000060.1.tmp"
    half.mkdir()
    with open(used / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        message = heard(capsys, 2)
        assert message[0].startswith("1 half-saved checkpoint of dead trainings (0.0 MB) under ")
        assert message[1].startswith("checkpoints (0.0 MB):")
        assert [line.split(" (")[1].split(")")[0] for line in message[2:]] == [
            "a longer training can continue from it and kept on purpose, `--fix --checkpoints` removes the fork",
            "to resume from, `--fix --checkpoints` removes it",
            "to resume from",
            "in use",
        ]
        heard(capsys, 0, fix=True)
        assert not half.exists()
        assert len(checkpoints.kept(root)) == 4
        heard(capsys, 0, fix=True, checkpoints=True)
    left = [(one.path.name[-1], list(one.steps)) for one in checkpoints.kept(root)]
    assert left == [
        ("a", ["step-00000020"]),
        ("c", ["step-00000040", "step-00000050"]),
        ("d", ["step-00000060"]),
    ]
    assert fork.is_dir()
    with pytest.raises(UserError, match="--checkpoints removes files, so it needs --fix"):
        doctor(fix=False, remove_checkpoints=True)


def test_a_disk_that_is_nearly_full(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(command.shutil, "disk_usage", lambda _: usage(100 << 30, 97 << 30, 3 << 30))
    lines = heard(capsys, 2, fix=True)
    assert f"the disk of {workspace} is nearly full: 3.0 of 100 GiB are free; `dvc gc --workspace`" in lines[0]


def test_nothing_is_put_right_while_a_run_is_at_work(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with run_lock(root=workspace):
        assert heard(capsys, 0) == ["all is well"]
        with pytest.raises(RetryableError, match="in use by"):
            doctor(fix=True, remove_checkpoints=False)


def test_outside_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEXMILL_EXECUTION", raising=False)
    with pytest.raises(UserError, match="run this in the project's folder"):
        doctor(fix=False, remove_checkpoints=False)


@pytest.mark.e2e
def test_an_mlflow_database_of_another_version_is_upgraded(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "conf/execution/local.yaml").write_text("publish: true\n")
    database = workspace / "mlflow.db"
    database.write_bytes(b"")
    (line,) = heard(capsys, 2)
    assert line.startswith(f"the MLflow database {database} was made by another version of MLflow;")
    assert heard(capsys, 0, fix=True)[-1] == "all is well"
    assert heard(capsys, 0) == ["all is well"]
    database.write_text("no database")
    assert "this could not be repaired: " in heard(capsys, 2, fix=True)[0]


@pytest.mark.e2e
def test_a_dead_run_ends_as_killed_in_mlflow(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mlflow import MlflowClient

    (workspace / "conf/execution/local.yaml").write_text("publish: true\n")
    killed(DIES)
    assert len(heard(capsys, 2)) == 1  # what is not closed is not sent
    lines = heard(capsys, 0, fix=True)
    assert [line.split(":")[0] for line in lines] == ["repaired", "sent to MLflow", "repaired", "all is well"]
    assert "1 record of trainings and runs wait for MLflow" in lines[2]
    client = MlflowClient(f"sqlite:///{workspace}/mlflow.db")
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
    parents = [run for run in runs if run.data.tags.get("lexmill.run") == "f" * 32]
    assert [run.info.status for run in parents] == ["KILLED"]
    assert heard(capsys, 0) == ["all is well"]
