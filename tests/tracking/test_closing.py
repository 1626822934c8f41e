"""A run that is stopped is shown as stopped at once, where the store answers; one that does not answer holds nobody."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base.errors import Terminated
from lexmill.commands import run
from lexmill.commands.run import open_run
from lexmill.runner.graph import Plan
from lexmill.runner.record import RunRecord, records
from lexmill.runner.supervised import Outcome
from lexmill.tracking import closing, runs, spool, store
from lexmill.tracking.closing import Closing
from lexmill.tracking.spool import Sending
from lexmill.training import watching
from tests.support.waiting import wait_for

from .conftest import Server
from .test_live import cursor, steps, watch_of
from .test_points import TRAINING, URI, client_of
from .test_runs import Project

# A training whose points are sent while it goes on; it ends when it is asked to.
TRAINING_STAGE = """
import time
from pathlib import Path
from lexmill.compute.execution import load_execution
from lexmill.stages.entry import run_stage
from lexmill.tracking.live import LiveSender
from lexmill.training import watching
watching._SEND_AFTER_SECONDS = watching._POINT_SECONDS = 0.0
def main(key):
    sender = LiveSender(load_execution().tracking_uri, "tiny", key, every=0.1, share=1, patience=0.5, idle=False)
    with watching.Watch("train-gpt", folder=Path(".lexmill/metrics"), sender=sender) as watch:
        watch.start(0, f"train-gpt-{time.time_ns():x}")
        watch.step(1, 64, loss=5.0, lr=0.001, grad_norm=1.0)
        time.sleep(600)
run_stage(main)
"""


# The command on a machine that may be busy.
PATIENT_RUN = """
from lexmill.tracking import closing
closing._MOST_SECONDS = 120.0
from lexmill.cli import main
main()
"""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are sent at once, and the end of a run waits as long as it takes."""
    monkeypatch.setattr(watching, "_SEND_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(watching, "_POINT_SECONDS", 0.0)
    monkeypatch.setattr(closing, "_MOST_SECONDS", 120.0)


def test_what_a_stopped_run_left_open_is_closed_and_the_rest_is_sent_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RunRecord.start(root, "c" * 32, "lexmill run", "run", Plan(()), experiment="tiny")
    record.begin("train@gpt")
    monkeypatch.setenv("LEXMILL_RUN", record.token)
    watch = watch_of(root, URI)
    watch.start(0, TRAINING)
    steps(watch, 1, 5)
    wait_for(lambda: cursor(root).sent.get("row") == 5 and runs.RunCursor.read(record.path, record.token).parent)
    end = Closing(URI, root)
    end.start(record.path)
    sender: Any = watch._sender
    os.kill(sender._child.process.pid, signal.SIGKILL)  # as the training, which was too slow to end
    watch.close()
    record.stage(Outcome("train@gpt", "stopped", 143, 1.0))
    record.end(143)
    assert end.finish(record.path)
    client, parent = client_of(root), runs.RunCursor.read(record.path, record.token).parent
    for run_id in (parent, cursor(root).run_id):
        info = client.get_run(run_id).info
        assert (info.status, info.end_time) == ("KILLED", runs.ended(runs.read(record.path) or {}))
    assert spool.waiting(root).records == [record.path]
    left = spool.send(Sending(root, URI, "tiny", lambda *_: cursor(root).run_id, lambda _: None))
    assert not left
    sent = client.get_run(parent)
    assert (sent.info.status, sent.data.metrics["stages/stopped"]) == ("KILLED", 1)


def test_the_flow_closes_it_too_when_it_is_cancelled(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There an exception ends the run, and no signal of ours."""
    project = Project(root)
    project.stages("cp x y")
    monkeypatch.chdir(root)
    for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR"):
        monkeypatch.setenv(name, project.environment[name])
    with pytest.raises(Terminated), open_run((), 1, door="flow", handle_signals=False) as session:
        assert session.run("make@x").code == 0
        assert session.record is not None
        parent = made_parent(root, session.record)
        raise Terminated("cancelled")
    assert client_of(root).get_run(parent).info.status == "KILLED"


def made_parent(root: Path, record: RunRecord) -> str:
    """The parent run of a record, in the store."""
    with store.opened(URI, root) as client:
        return runs.parent(client, store.experiment_id(client, "tiny", store.sqlite_path(URI, root)), record.path)


def test_a_failed_run_is_closed_when_its_sending_is_interrupted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    Project(root).stages("cp x y")
    monkeypatch.chdir(root)
    monkeypatch.setattr(run, "send_after_run", interrupted)
    with pytest.raises(KeyboardInterrupt), open_run((), 1) as session:
        session._begin("use")
        session._keep(Outcome("use", "failed", 75, 1.0))
        assert session.record is not None
        parent = made_parent(root, session.record)
        session.end()
        assert client_of(root).get_run(parent).info.status == "RUNNING"
    assert client_of(root).get_run(parent).info.status == "FAILED"


def test_neither_a_damaged_file_nor_a_full_machine_keeps_a_run_from_stopping(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    record = RunRecord.start(root, "d" * 32, "lexmill run", "run", Plan(()), experiment="tiny")
    record.begin("train@gpt")
    points = root / ".lexmill" / "metrics" / "train-gpt.jsonl"
    points.parent.mkdir(parents=True)
    monkeypatch.setattr(subprocess, "Popen", no_room)
    for content in (b"\0\0\0\0\n", b"{}\n", b"[]\n", b"\xff\n"):  # as a machine that lost its power may leave it
        points.write_bytes(content)
        end = Closing(URI, root)
        end.start(record.path)
        assert end.finish(record.path)  # the store knows nothing of it
    made_parent(root, record)
    end = Closing(URI, root)
    end.start(record.path)
    assert not end.finish(record.path)


@pytest.mark.e2e
def test_ctrl_c_of_a_run_whose_training_sends_its_points(server: Server, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.environment["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "600"
    (tmp_path / "conf/execution/local.yaml").write_text(f"accelerator: cpu\ntracking_uri: {server.uri}\n")
    (tmp_path / "train.py").write_text(TRAINING_STAGE)
    do = {"cmd": "python train.py ${item}", "outs": ["never"]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train": {"foreach": ["gpt"], "do": do}}}))

    message = stopped(project, ["-c", PATIENT_RUN], signal.SIGINT, 130)
    client, parent = client_of(server.root), parent_of(project)
    assert client.get_run(parent).info.status == "KILLED", message

    # Were it waited for, this would last ten minutes.
    message = stopped(project, ["-m", "lexmill.cli"], signal.SIGTERM, 143, server)
    assert "MLflow shows this run as running until the next run or `lexmill sync`" in message
    parent = parent_of(project)
    assert client.get_run(parent).info.status == "RUNNING"
    server.answers("ok")
    assert project.lexmill("sync")[0] == 0
    assert client.get_run(parent).info.status == "KILLED"


def parent_of(project: Project) -> str:
    """The parent of the newest run; empty before it is made."""
    record = records(project.root)[-1]
    return runs.RunCursor.read(record.path, record.token).parent


def stopped(project: Project, command: list[str], number: int, code: int, hangs: Server | None = None) -> str:
    """Start a run, stop it when its training has a parent, from when on a server answers no more; what it said."""
    before = len(records(project.root))
    with project.start("run", command=command) as process:
        try:
            wait_for(lambda: process.poll() is not None or (len(records(project.root)) > before and parent_of(project)))
            if hangs is not None:
                hangs.answers("hang")
            process.send_signal(number)
            message, _ = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == code, message
    return message
