"""A cancel from the page ends the whole tree, whoever started the run, and leaves the workspace free."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from lexmill.runner.ending import kill_stages

from .conftest import wait_for

pytestmark = pytest.mark.e2e

# It tells its number, and does not end when it is asked to.
STUBBORN = """
import os, pathlib, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
pathlib.Path("pid").write_text(str(os.getpid()))
time.sleep(600)
"""


def started(workspace: Any) -> int:
    """The number of the process that a stage has written down."""
    path: Path = workspace.root / "pid"
    return int(wait_for(lambda: path.exists() and path.read_text().strip(), "no stage started"))


def is_free(workspace: Any) -> bool:
    code, _ = workspace.run("-c", "from lexmill.workspace import run_lock\nwith run_lock(wait_seconds=0): pass")
    return bool(code == 0)


def test_a_run_that_nobody_supervises_sees_its_own_cancel(workspace: Any) -> None:
    (workspace.root / "stubborn.py").write_text(STUBBORN)
    workspace.stage("fetch", "echo 1 > fetch.out")
    workspace.stage("pretrain", "python stubborn.py", ("fetch",))
    workspace.stage("report", "echo 1 > report.out", ("pretrain",))
    with workspace.start("-m", "flows.pipeline", "run") as process:
        stage = started(workspace)
        run = workspace.runs("RUNNING")[0]["id"]
        workspace.cancel(run)
        wait_for(lambda: not psutil.pid_exists(stage), "the stage goes on")
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert f"the Prefect page: {workspace.url}\n" in output
    assert "cancelled from the Prefect page: what runs is asked to end" in output
    assert "Traceback" not in output
    assert workspace.state(run) == "Cancelled"
    states = {row["stage"]: row["state"] for row in table_of(workspace, run)}
    assert states == {"fetch": "ran", "pretrain": "stopped", "report": "not run"}
    assert is_free(workspace)


def table_of(workspace: Any, run: str) -> list[dict[str, Any]]:
    return list(json.loads(workspace.artifacts(run)["stages"]["data"]))


# Beyond the stages, something that hears nothing: an upload, say.
UPLOADING = """
import pathlib, time
from flows import pipeline
def finish(root, display, *, approve=None):
    pathlib.Path("pid").write_text("1")
    while True:
        time.sleep(0.1)
pipeline.finish = finish
from flows.main import main
main(["run"])
"""


def test_a_cancel_ends_what_keeps_the_run_after_its_stages(workspace: Any) -> None:
    workspace.stage("fetch", "echo 1 > fetch.out")
    with workspace.start("-c", UPLOADING) as process:
        started(workspace)
        run = workspace.runs("RUNNING")[0]["id"]
        workspace.cancel(run)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert workspace.state(run) == "Cancelled"
    assert is_free(workspace)


def test_only_stages_are_killed_and_dvc_ends_by_itself(workspace: Any) -> None:
    workspace.stage("fetch", "echo $$ > pid; sleep 600")
    command = [sys.executable, "-m", "lexmill.runner.supervisor", sys.executable, "-m", "dvc", "repro", "fetch"]
    with subprocess.Popen(command, cwd=workspace.root, env=workspace.environment, stdin=subprocess.PIPE) as supervisor:
        stage = started(workspace)
        wait_for(kill_stages)
        assert supervisor.wait(60) == 255  # dvc's own code for a failed stage: it was not killed
    assert not psutil.pid_exists(stage)
