"""What plain `dvc repro` keeps by itself: a stage takes no workspace that a run holds, and no stage runs twice."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lexmill.base import workspace
from lexmill.base.errors import RetryableError


def test_a_stage_beside_a_run_is_refused_and_learns_who_holds_the_workspace(tmp_path: Path) -> None:
    with (
        workspace.run_lock("lexmill run", tmp_path),
        pytest.raises(
            RetryableError, match=r"stage 'encode@x': this workspace is in use by lexmill run \(process \d+ on"
        ),
        workspace.stage_guard("encode@x", tmp_path),
    ):
        pass


def test_a_stage_of_the_run_itself_is_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with workspace.run_lock("lexmill run", tmp_path) as lock:
        monkeypatch.setenv(workspace.TOKEN_VARIABLE, lock.token)
        with workspace.stage_guard("encode@x", tmp_path):
            pass


def test_the_same_stage_twice_waits_and_is_refused(tmp_path: Path) -> None:
    with (
        workspace.stage_guard("encode@x", tmp_path),
        pytest.raises(RetryableError, match=r"stage 'encode@x' is already run by stage encode@x \(process \d+ on"),
        workspace.stage_guard("encode@x", tmp_path, wait_seconds=0.2),
    ):
        pass


def test_other_stages_and_a_later_one_are_let_in(tmp_path: Path) -> None:
    with workspace.stage_guard("encode@x", tmp_path), workspace.stage_guard("encode@y", tmp_path):
        pass
    with workspace.stage_guard("encode@x", tmp_path):
        pass


def test_one_that_is_just_ending_is_waited_for(tmp_path: Path) -> None:
    held = workspace.stage_guard("encode@x", tmp_path)
    held.__enter__()
    threading.Timer(0.5, held.__exit__, (None, None, None)).start()
    with workspace.stage_guard("encode@x", tmp_path, wait_seconds=30):
        pass
