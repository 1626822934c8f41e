"""A cancel from the page ends the whole tree, whoever started the run, and leaves the workspace free."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from flows import cancelling
from flows.pipeline import STOPPED_BEFORE, STOPPED_BETWEEN
from lexmill.runner.ending import SUPERVISOR, kill_stages
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

# It tells its number and how far it is, and does not end when it is asked to.
STUBBORN = """
import os, pathlib, signal, time
from lexmill.base.progress import bar
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
pathlib.Path("pid").write_text(str(os.getpid()))
with bar("train gpt", 10) as shown:
    shown.update(4, loss=2.5)
    while True:
        time.sleep(0.3)
        shown.update(0)
"""


# The first of its pauses before another try is longer than the test.
PAUSING = """
from flows import pipeline
pipeline.RETRY_PAUSES = (600.0,)
from flows.__main__ import main
main(["run"])
"""


def started(workspace: Any) -> int:
    """The number of the process that a stage has written down."""
    path: Path = workspace.root / "pid"
    return int(wait_for(lambda: path.exists() and path.read_text().strip(), "no stage started"))


def is_free(workspace: Any) -> bool:
    code, _ = workspace.run("-c", "from lexmill.base.workspace import run_lock\nwith run_lock(wait_seconds=0): pass")
    return bool(code == 0)


def test_a_run_that_nobody_supervises_sees_its_own_cancel(workspace: Any) -> None:
    (workspace.root / "stubborn.py").write_text(STUBBORN)
    workspace.stage("mirror", "touch failed; exit 75")
    workspace.stage("fetch", "until [ -e failed ]; do sleep 0.1; done; echo 1 > fetch.out")
    both = ("train@gpt", "train@lstm")  # whichever comes first holds the cores
    for name in both:
        workspace.stage(name, "python stubborn.py", ("fetch",))
    workspace.stage("report", "echo 1 > report.out", both)
    with workspace.start("-c", PAUSING) as process:
        stage = started(workspace)
        run = workspace.runs("RUNNING")[0]["id"]
        shown = wait_for(lambda: progress_of(workspace, run), "no progress on the page")
        trains = shown["key"].removeprefix("progress-").replace("-", "@")
        assert shown["type"] == "progress"
        assert shown["description"].startswith("train gpt")
        assert "loss 2.5" in shown["description"]
        (waits,) = set(both) - {trains}
        waiting = {waits: "Waiting", "mirror": "Waiting"}
        # The server writes the states of tasks down by and by.
        wait_for(lambda: states_of(workspace, run).items() >= {trains: "Running", **waiting}.items())
        tasks = workspace.tasks(run)
        assert tasks[trains]["id"] == shown["task_run_id"]
        assert tasks[waits]["state_type"] == "PENDING"
        workspace.cancel(run)
        wait_for(lambda: not psutil.pid_exists(stage), "the stage goes on")
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert f"the Prefect page: {workspace.url}\n" in output
    assert "cancelled from the Prefect page: waiting for what runs to end" in output
    assert "Traceback" not in output
    assert workspace.state(run) == "Cancelled"
    rows = {row["stage"]: row for row in table_of(workspace, run)}
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {"mirror": "failed", "fetch": "ran", trains: "stopped", waits: "not run", "report": "not run"}
    assert rows["mirror"]["exit code"] == 75
    assert rows["mirror"]["seconds"] is not None
    assert f"{trains}: stopped; train gpt" in workspace.artifacts(run)[shown["key"]]["description"]
    ended = {"fetch": "Completed", trains: "Cancelled", waits: "Cancelled", "mirror": "Cancelled"}
    wait_for(lambda: states_of(workspace, run).items() >= ended.items())
    # Of a task without a final state when the flow run ends, a busy server itself says that it was cancelled.
    wait_for(lambda: states_of(workspace, run)["report"] in ("NotReady", "Cancelled"))
    tasks = workspace.tasks(run)
    by_the_server = "The parent flow run was cancelled."
    assert tasks["mirror"]["state"]["message"] in (STOPPED_BETWEEN, by_the_server)
    assert tasks[waits]["state"]["message"] in (STOPPED_BEFORE, by_the_server)
    assert is_free(workspace)


def states_of(workspace: Any, run: str) -> dict[str, str]:
    """The states of a flow run's tasks, as the page names them."""
    return {name: task["state_name"] for name, task in workspace.tasks(run).items()}


def progress_of(workspace: Any, run: str) -> dict[str, Any] | None:
    """The artifact that tells that a stage of a flow run is through 40 per cent; None while there is none."""
    found = [one for key, one in workspace.artifacts(run).items() if key.startswith("progress-")]
    return next((one for one in found if one["data"] == 40.0), None)


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
from flows.__main__ import main
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
    with supervised("-m", "dvc", "repro", "fetch", root=workspace.root, environment=workspace.environment) as parent:
        stage = started(workspace)
        wait_for(lambda: kill_stages(parent.pid))
        assert parent.wait(60) == 255  # dvc's own code for a failed stage: it was not killed
    assert not psutil.pid_exists(stage)


def supervised(*arguments: str, root: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The parent of a supervised Python: what pytest itself has under supervisors (the server) is no child of it."""
    command = shlex.join([sys.executable, "-m", SUPERVISOR, sys.executable, *arguments])
    return subprocess.Popen(["sh", "-c", f"{command}; exit $?"], cwd=root, env=environment, stdin=subprocess.PIPE)


def test_a_command_that_does_not_end_after_its_stages_is_killed_too(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    with supervised("stubborn.py", root=tmp_path, environment=dict(os.environ)) as parent:
        command = int(wait_for(lambda: (path := tmp_path / "pid").exists() and path.read_text()))
        assert kill_stages(parent.pid) == 0
        assert psutil.pid_exists(command)
        assert kill_stages(parent.pid, commands=True) == 1
        assert parent.wait(60) == 128 + signal.SIGKILL
    assert not psutil.pid_exists(command)


class Clock:
    """Stands for the event of a block's end, which never comes; adds up what is waited."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wait(self, seconds: float) -> bool:
        self.seconds += seconds
        return False


def test_what_a_cancel_waits_for_is_less_than_the_ten_seconds_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst case: asked just after a look, and nothing ends by itself."""
    clock, done = Clock(), []
    monkeypatch.setattr(cancelling, "kill_stages", lambda *, commands=False: done.append((clock.seconds, commands)))
    monkeypatch.setattr(os, "kill", lambda _process, number: done.append((clock.seconds, number)))
    watch = cancelling.CancelWatch(uuid4())
    monkeypatch.setattr(watch, "_ended", clock)
    monkeypatch.setattr(watch, "look", lambda: True)
    watch._watch()
    assert clock.seconds == pytest.approx(cancelling.BOUND_SECONDS)
    assert cancelling.BOUND_SECONDS + 1 < 10  # a second for the requests, and for what has been killed to be gone
    assert done[0] == (pytest.approx(cancelling.LOOK_SECONDS + cancelling.ORDERLY_SECONDS), False)
    assert [what for _, what in done[-2:]] == [True, signal.SIGTERM]
    assert watch.struck
