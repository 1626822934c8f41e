"""The small files by which runs, DVC and trainings find each other: any bytes end in a message or a mended state.

A stopped machine, a full disk or a stranger's editor may leave anything there. Each example puts bytes into one of them
and goes through the doors that read it: what is there to run, `lexmill doctor --fix`, what waits for MLflow.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base import workspace
from lexmill.base.errors import RetryableError, UserError
from lexmill.commands.doctor import doctor
from lexmill.runner import graph
from lexmill.runner.display import Display
from lexmill.runner.record import unfinished
from lexmill.runner.session import open_session, run_all
from lexmill.tracking import spool
from tests.fuzz.budget import fuzzed, hostile_json, mutated, outcome
from tests.support.once import init_repository
from tests.support.small_project import whole

HOLDER = {"what": "lexmill run", "pid": 1, "host": "here", "since": "2026-01-01 00:00:00", "token": "abc"}
POINTS = [
    {"kind": "training", "training": "toy-1", "run": "toy", "time": 1},
    {"kind": "begin", "step": 0, "token": "abc", "time": 1},
    {"kind": "row", "time": 2, "step": 1, "train_loss": 3.5},
]
MADE: dict[str, Any] = {
    ".dvc/tmp/rwlock": {"write": {"/a": {"pid": 1, "cmd": "dvc repro"}}, "read": {"/b": [{"pid": 1, "cmd": "dvc"}]}},
    ".lexmill/run.lock": HOLDER,
    ".lexmill/status/one.json": {"stage": "one", "code": 75, "message": "later"},
    ".lexmill/locks/one": HOLDER,
    ".lexmill/servers/prefect.json": {"url": "http://127.0.0.1:9", "pid": 2**22 + 1},
    ".lexmill/worktree.json": {"name": "wide", "main": "."},
    ".lexmill/metrics/train-toy.sent.json": {"training": "toy-1", "offset": 10},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace after a run, with all of these files."""
    root = tmp_path_factory.mktemp("state") / "a project"
    root.mkdir()
    init_repository(root)
    (root / "conf" / "execution").mkdir(parents=True)
    (root / "conf" / "execution" / "local.yaml").write_text("publish: false\n")
    params = whole({"experiment": "x", "data_seed": 1, "training_seed": 1})
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    stages = {name: {"cmd": f"echo {name} > {name}.out", "outs": [f"{name}.out"]} for name in ("one", "two")}
    (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    with open_session((), root=root, display=Display()) as session:
        run_all(session)
        session.end()
    for name, value in MADE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    (root / ".lexmill/metrics/train-toy.jsonl").write_text("".join(json.dumps(one) + "\n" for one in POINTS))
    return root


def doors(root: Path) -> None:
    """What reads these files; each door is tried, whatever the one before said."""
    workspace.main_root(root)
    workspace.held_by(root)
    workspace.read_status("one", root)
    errors = []
    for door in (
        lambda: graph.read(root),
        lambda: unfinished(root),
        lambda: spool.waiting(root),
        lambda: doctor(fix=True, remove_checkpoints=False),
    ):
        try:
            door()
        except (UserError, RetryableError) as error:
            errors.append(error)
    if errors:
        raise errors[0]


FILES = (
    *("dvc.lock", ".lexmill/metrics/train-toy.jsonl"),
    *MADE,
    ".lexmill/runs/*.json",
)


@pytest.mark.parametrize("name", FILES)
def test_any_bytes_end_in_a_message_or_a_mended_state(
    name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEXMILL_EXECUTION", raising=False)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    root = tmp_path / "a project"
    shutil.copytree(made, root, symlinks=True)
    monkeypatch.chdir(root)
    (path,) = root.glob(name)
    valid = path.read_bytes()
    inputs = mutated([valid]) | st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000, b"\xff" * 10, b""])
    if name.endswith(".json") or name in MADE:
        inputs |= hostile_json(json.loads(valid)).map(lambda value: json.dumps(value).encode())

    @fuzzed(12)
    @given(inputs)
    def check(data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        outcome(lambda: doors(root))

    check()
