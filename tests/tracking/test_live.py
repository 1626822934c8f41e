"""Points of a running training through a server that fails: no step waits, each point arrives once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from lexmill.compute.execution import Execution
from lexmill.models.common.state import snapshot
from lexmill.runner.graph import Plan
from lexmill.runner.record import RunRecord
from lexmill.tracking import live, points, runs, spool
from lexmill.tracking.live import LiveSender, pause_after, sender_of
from lexmill.tracking.points import Cursor
from lexmill.tracking.spool import Sending
from lexmill.training import watching
from lexmill.training.engine import fit
from lexmill.training.watching import Watch
from tests.support.waiting import wait_for

from ..training.arithmetic_task import DyingTask, execution, settings
from .conftest import Server
from .test_points import TRAINING, client_of, deliver, file_of, found, losses


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SEND_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(watching, "_POINT_SECONDS", 0.0)
    monkeypatch.setattr(watching, "_POINT_SHARE", 0.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")


def watch_of(root: Path, uri: str, patience: float = 60.0) -> Watch:
    sender = LiveSender(uri, "tiny", "gpt", root=root, every=0.1, share=1, patience=patience, idle=False)
    return Watch("train-gpt", folder=root / ".lexmill" / "metrics", sender=sender)


def steps(watch: Watch, first: int, last: int) -> None:
    for step in range(first, last + 1):
        watch.row({"step": step, "tokens": 64 * step, "train_loss": 5 / step})
        watch.step(step, 64, loss=5 / step, lr=0.001, grad_norm=1.0)


def cursor(root: Path, training: str = TRAINING) -> Cursor:
    return Cursor.read(file_of(root), training)


@pytest.mark.parametrize(("spent", "pause"), [(0.001, 5.0), (0.0125, 5.0), (0.05, 20.0), (3.0, 60.0)])
def test_a_call_is_followed_by_four_hundred_times_as_long_a_pause(spent: float, pause: float) -> None:
    assert pause_after(spent, 5.0, 0.0025) == pytest.approx(pause)


def test_each_point_arrives_once_whenever_the_server_fails(server: Server, tmp_path: Path) -> None:
    """It refuses with 500 and 401, does what it is asked but says 500, does it but never answers."""
    with watch_of(tmp_path, server.uri) as watch:
        watch.start(0, TRAINING)
        steps(watch, 1, 5)
        wait_for(lambda: cursor(tmp_path).sent.get("row") == 5)
        for number, how in enumerate(("500", "401", "lose", "hang"), 1):
            server.answers(how)
            steps(watch, 10 * number, 10 * number + 4)
            wait_for(lambda: cursor(tmp_path).failure)
            assert cursor(tmp_path).sent["row"] < 10 * number
            server.answers("ok")
            wait_for(lambda: not cursor(tmp_path).failure)
        steps(watch, 50, 52)
        (tmp_path / "model.safetensors").write_bytes(b"weights")
        watch.made(tmp_path / "model.safetensors")
    run_id = cursor(tmp_path).run_id
    there = found(server.root, run_id)
    assert set(there.values()) == {1}
    made = [*range(1, 6), *range(10, 15), *range(20, 25), *range(30, 35), *range(40, 45), 50, 51, 52]
    assert losses(server.root, run_id) == [(step, 5 / step) for step in made]
    assert {step for key, step in there if key == "live/train_loss"} == set(made)
    assert points.complete(file_of(tmp_path))
    assert client_of(server.root).get_run(run_id).info.status == "FINISHED"


def test_a_server_that_never_answers_holds_nobody(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    training = "train-gpt-89ab"
    watch = watch_of(tmp_path, server.uri, patience=0.5)
    watch.start(0, training)
    steps(watch, 1, 5)
    wait_for(lambda: cursor(tmp_path, training).sent.get("row") == 5)
    server.answers("hang")
    steps(watch, 6, 10)
    wait_for(lambda: cursor(tmp_path, training).under_way)
    watch.close()
    assert "`lexmill sync` sends the rest" in capfd.readouterr().err
    server.answers("ok")
    run_id = deliver(tmp_path, server.uri)
    assert run_id == cursor(tmp_path, training).run_id
    assert set(found(server.root, run_id).values()) == {1}
    assert len(losses(server.root, run_id)) == 10


def test_the_sender_ends_soon_after_a_training_that_was_killed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the end of its standard input, whatever a call waits for."""
    watch = watch_of(tmp_path, server.uri, patience=0.5)
    watch.start(0, "train-gpt-cdef")
    server.answers("hang")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "600")
    steps(watch, 1, 5)
    sender: Any = watch._sender
    os.close(sender._child.process.stdin.fileno())  # as the system does when a process is gone
    sender._child.process.wait(60)


def test_a_store_that_is_down_to_the_end_gets_all_later(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And the password of its address is in no command line and in no file."""
    with watch_of(root, "http://me:secret@127.0.0.1:9") as watch:
        watch.start(0, TRAINING)
        steps(watch, 1, 5)
        wait_for(lambda: cursor(root).failure)
        sender: Any = watch._sender
        command = Path(f"/proc/{sender._child.process.pid}/cmdline")
        assert not command.exists() or b"secret" not in command.read_bytes()
    message = capfd.readouterr().err
    assert "http://127.0.0.1:9 does not answer" in message
    assert "secret" not in message
    for path in (root / ".lexmill").rglob("*"):
        assert not path.is_file() or b"secret" not in path.read_bytes()
    assert losses(root, deliver(root)) == [(step, 5 / step) for step in range(1, 6)]


def test_a_killed_sender_is_followed_by_the_next(root: Path) -> None:
    watch = watch_of(root, "sqlite:///mlflow.db")
    watch.start(0, TRAINING)
    steps(watch, 1, 5)
    wait_for(lambda: cursor(root).sent.get("row") == 5)
    sender: Any = watch._sender
    os.kill(sender._child.process.pid, signal.SIGKILL)
    steps(watch, 6, 8)
    watch.close()
    first = cursor(root).run_id

    with watch_of(root, "sqlite:///mlflow.db") as watch:  # the stage goes on from the checkpoint of step 4
        watch.start(4, TRAINING)
        steps(watch, 5, 12)
    assert cursor(root).run_id == first
    assert set(found(root, first).values()) == {1}
    assert [step for step, _ in losses(root, first)] == list(range(1, 13))
    assert client_of(root).get_run(first).info.status == "KILLED"  # no weights were made


@pytest.mark.parametrize("how", ["hang", "down", "500"])
def test_a_training_beside_a_server_that_fails_is_the_same_to_the_bit_and_waits_for_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Each step ends while no call has come back: one that waited would wait ten minutes."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "600")
    server.answers("ok" if how == "down" else how)
    uri = "http://127.0.0.1:9" if how == "down" else server.uri

    def weights(folder: Path, sender: LiveSender | None) -> dict[str, torch.Tensor]:
        task = DyingTask(-1, signal.SIGTERM, dropout=0.3)
        with Watch("train-gpt", folder=folder / ".lexmill" / "metrics", sender=sender, system_seconds=1e-9) as watch:
            fit(task, settings(), execution(folder), name="gpt", identity={}, watch=watch)
        return snapshot(task.module)

    alone = weights(tmp_path / "alone", None)
    beside = weights(
        tmp_path, LiveSender(uri, how, "gpt", root=tmp_path, every=0.01, share=1, patience=0.1, idle=False)
    )
    assert all(torch.equal(alone[name], beside[name]) for name in alone)
    lines = list(points.Tail(file_of(tmp_path)).lines())
    assert [line["step"] for line in lines if line["kind"] == "row"][-1] == 12
    assert "system" in {line["kind"] for line in lines}

    server.answers("ok")
    sent = spool.send(Sending(tmp_path, server.uri, how, lambda *_: None, lambda _: None))
    assert not sent
    run_id = Cursor.read(file_of(tmp_path), lines[0]["training"]).run_id
    assert set(found(server.root, run_id).values()) == {1}
    assert {step for key, step in found(server.root, run_id) if key == "curves/train_loss"} == {
        line["step"] for line in lines if line["kind"] == "row"
    }
    assert any(key.startswith("system/cpu_") for key, _ in found(server.root, run_id))


def test_a_running_training_is_already_a_child_of_its_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = RunRecord.start(root, "c" * 32, "lexmill run", "run", Plan(()), experiment="tiny")
    monkeypatch.setenv("LEXMILL_RUN", record.token)
    with watch_of(root, "sqlite:///mlflow.db") as watch:
        watch.start(0, TRAINING)
        steps(watch, 1, 5)
        wait_for(lambda: cursor(root).sent.get("row") == 5)
        run = client_of(root).get_run(cursor(root).run_id)
        parent = client_of(root).get_run(run.data.tags["mlflow.parentRunId"])
        assert parent.data.tags["lexmill.run"] == record.token
        assert (parent.info.status, parent.info.run_name) == ("RUNNING", runs.name_of(runs.read(record.path) or {}))
    record.end(0)
    spool.send(Sending(root, "sqlite:///mlflow.db", "tiny", lambda *_: None, lambda _: None))
    known = client_of(root).search_runs([run.info.experiment_id])
    assert {one.info.run_id for one in known} == {run.info.run_id, parent.info.run_id}
    assert client_of(root).get_run(parent.info.run_id).info.status == "FINISHED"


def test_nothing_is_sent_where_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sender_of(Execution(publish=False), "tiny", "gpt") is None
    assert sender_of(Execution(), "tiny", "gpt") is not None
    monkeypatch.setattr(live, "find_spec", lambda _: None)  # a training machine
    assert sender_of(Execution(), "tiny", "gpt") is None
