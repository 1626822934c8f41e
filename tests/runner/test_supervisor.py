"""Whatever happens to the runner, its tree ends; and a stage that is asked to end says so by its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from lexmill.base import workspace
from lexmill.stages import entry
from tests.support.waiting import wait_for

# A stage that names its process id, and waits; with a child that would outlive it.
WAITING = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path("pids.tmp").write_text(f"{os.getpid()} {child.pid}")
os.rename("pids.tmp", "pids")
time.sleep(600)
"""
OWN_STAGE = f"""
from lexmill.compute import execution
from lexmill.stages import entry
entry.preflight = execution.Execution
def main(key):
{"".join(f"    {line}{chr(10)}" for line in WAITING.strip().splitlines())}
entry.run_stage(main)
"""
RUN = """
import sys
from lexmill.runner.session import open_session, run_all
with open_session() as session:
    run_all(session)
sys.exit(session.code)
"""


def running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def read_pids(root: Path) -> list[int]:
    path = root / "pids"
    wait_for(path.exists)
    return [int(word) for word in path.read_text().split()]


def slow(project: Any, body: str) -> None:
    """A DAG of one stage, which waits."""
    project.stage("slow", body)
    project.stages["slow"]["cmd"] += " key"
    project.save()


@pytest.mark.parametrize("body", [WAITING, OWN_STAGE], ids=["any command", "a stage of ours"])
def test_kill_9_of_the_run_ends_the_tree_and_frees_the_workspace(project: Any, spawn: Any, body: str) -> None:
    slow(project, body)
    run = spawn([sys.executable, "-c", RUN], cwd=project.root)
    pids = read_pids(project.root)
    run.kill()
    wait_for(lambda: not any(map(running, pids)))
    with workspace.run_lock(root=project.root, wait_seconds=30):
        assert workspace.read_status("slow", project.root) is None or body == OWN_STAGE
    project.stage("slow", "write('done')")
    assert project.run().code == 0  # no lock was left


@contextmanager
def terminated(project: Any, stage: int, child: int) -> Iterator[None]:
    """What the block kills ends the stage in order; the child, which nobody supervises then, is killed at the end."""
    try:
        yield
        wait_for(lambda: not running(stage))
        status = workspace.read_status("slow", project.root)
        assert status is not None
        assert status[0] == 143
    finally:
        os.kill(child, signal.SIGKILL)


def test_kill_9_of_the_supervisor_ends_the_stage_before_the_run_goes_on(project: Any, spawn: Any) -> None:
    slow(project, OWN_STAGE)
    run = spawn([sys.executable, "-c", RUN], cwd=project.root, stderr=subprocess.DEVNULL)
    with terminated(project, *read_pids(project.root)):
        (supervisor,) = psutil.Process(run.pid).children()
        supervisor.kill()
    assert run.wait(timeout=30) == 143


def test_kill_9_of_dvc_ends_the_stage_it_started(project: Any, spawn: Any) -> None:
    slow(project, OWN_STAGE)
    dvc = spawn([sys.executable, "-m", "dvc", "repro"], cwd=project.root, stderr=subprocess.DEVNULL)
    with terminated(project, *read_pids(project.root)):
        dvc.kill()


def test_a_stage_knows_its_dvc_by_more_than_its_process_id(spawn: Any) -> None:
    """The id of a dvc that is gone may be another program's, and one that nobody has waited for still has its own."""
    dvc = spawn([sys.executable, "-c", "import time; time.sleep(600)"])
    seen, before = psutil.Process(dvc.pid), psutil.Process(dvc.pid)
    assert entry._lives(seen)
    before._ident = (dvc.pid, 1.0)  # as it was noted of a process that started earlier
    assert not entry._lives(before)
    dvc.kill()
    wait_for(lambda: seen.status() == psutil.STATUS_ZOMBIE)
    assert not entry._lives(seen)
    dvc.wait()
    assert not entry._lives(seen)


def test_the_supervisor_gives_the_commands_code(spawn: Any) -> None:
    for command, code in ((["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137)):
        process = spawn([sys.executable, "-m", "lexmill.runner.supervisor", *command], stdin=subprocess.PIPE)
        assert process.wait(timeout=30) == code


def test_what_the_command_leaves_behind_is_ended(spawn: Any, tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/pid"
    process = spawn([sys.executable, "-m", "lexmill.runner.supervisor", "sh", "-c", script], stdin=subprocess.PIPE)
    assert process.wait(timeout=30) == 0
    assert not running(int((tmp_path / "pid").read_text()))


def test_a_command_that_ignores_the_request_is_killed_when_the_parent_is_gone(spawn: Any, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    deaf = "import signal, time, pathlib; [signal.signal(number, signal.SIG_IGN) for number in (2, 15)]"
    command = [sys.executable, "-c", f"{deaf}; pathlib.Path({str(ready)!r}).touch(); time.sleep(600)"]
    process = spawn([sys.executable, "-m", "lexmill.runner.supervisor", *command], stdin=subprocess.PIPE)
    wait_for(ready.exists)
    process.stdin.close()
    assert process.wait(timeout=30) == 137
