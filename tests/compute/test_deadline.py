"""A stage over its time: ended in order as worth another try; one that does not end then is killed with its tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lexmill.base import workspace
from lexmill.base.errors import EXIT_RETRY, EXIT_TERMINATED
from lexmill.compute import deadline

STAGE = """
import signal, subprocess, sys, time
from lexmill.compute import execution
from lexmill.compute.settings import Duration, StageSettings
from lexmill.stages import entry
seconds = float(sys.argv.pop())
entry.preflight = lambda: execution.Execution(stages={"default": StageSettings(time=Duration(seconds))})
def main(key):
    print("works", flush=True)
    time.sleep(600)
entry.run_stage(main)
"""
DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_its_time_is_reported_and_worth_another_try(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(STAGE)
    done = subprocess.run(
        [sys.executable, "own.py", "key", "1.5"],
        cwd=tmp_path,
        env={**os.environ, "DVC_STAGE": "own@key"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == EXIT_RETRY, done.stderr
    assert done.stdout == "works\n"
    assert done.stderr.startswith("it ran longer than its time (1.5 seconds) and was ended; run again to continue")
    assert workspace.read_status("own@key", tmp_path) == (EXIT_RETRY, done.stderr.strip())


def test_a_stop_within_its_time_is_a_stop(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(STAGE)
    with subprocess.Popen(
        [sys.executable, "own.py", "key", "600"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (keeper,) = psutil.Process(process.pid).children()
        process.terminate()
        assert process.wait(60) == EXIT_TERMINATED
    assert not keeper.is_running()


def test_what_does_not_end_is_killed_with_its_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        deadline.keep(process.pid, 0.1, "deaf@x", grace=0.3)
        assert process.wait(60) == -9
    psutil.wait_procs([child], timeout=60)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert workspace.read_status("deaf@x", tmp_path) == (EXIT_RETRY, deadline.sentence(0.1))


def test_the_keeper_of_a_time_leaves_with_its_stage() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        deadline.keep(process.pid, 600, "gone@x")
    deadline.keep(process.pid, 600, "gone@x")
