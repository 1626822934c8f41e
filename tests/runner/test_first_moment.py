"""Ctrl-C while a command is still importing: it ends by the signal, without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SLOW = "import pathlib, time; pathlib.Path('ready').touch(); time.sleep(60)"


@pytest.mark.parametrize(
    ("command", "slow"),
    [
        (("-m", "lexmill.stages.fetch", "books"), "yaml"),
        (("-m", "lexmill.cli", "run"), "typer"),
        ((str(Path(sys.executable).parent / "lexmill"), "run"), "typer"),
    ],
)
def test_no_traceback(tmp_path: Path, command: tuple[str, ...], slow: str) -> None:
    (tmp_path / f"{slow}.py").write_text(SLOW)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert message == ""
