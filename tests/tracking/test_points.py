"""A training's points in its MLflow run: each once, through kills, outages and resumes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from lexmill.base import storage
from lexmill.tracking import points, store
from lexmill.tracking.points import Cursor, Delivery, Tail
from lexmill.training import watching
from lexmill.training.watching import Watch

URI = "sqlite:///mlflow.db"
TRAINING = "train-gpt-0123"


def train(root: Path, first: int, last: int, training: str = TRAINING) -> Watch:
    """Steps `first` to `last`, a row each and a sample every fourth, as the engine would report them."""
    watch = Watch(
        "train-gpt", folder=root / ".lexmill" / "metrics", sampler=lambda _: "to be", sample_every=4, now=lambda: 5.0
    )
    watch.start(first - 1, training)
    module: Any = _Module()
    for step in range(first, last + 1):
        watch.step(step, 64, loss=5 / step, lr=0.001, grad_norm=1.0)
        watch.row({"step": step, "tokens": 64 * step, "train_loss": 5 / step})
        with mock.patch.multiple(watching, _SAMPLE_SHARE=1.0, _SAMPLE_AFTER_SECONDS=0.0):  # these steps take no time
            watch.sample(step, module)
    return watch


class _Module:
    training = True

    def eval(self) -> None: ...

    def train(self, _: bool) -> None: ...


def file_of(root: Path) -> Path:
    return points.file_of("train", "gpt", root)


def deliver(root: Path, uri: str = URI, **options: Any) -> str:
    """Send what the file holds; gives the run."""
    with store.opened(uri, root) as client:
        experiment = store.experiment_id(client, "tiny", store.sqlite_path(uri, root))
        delivery = Delivery(client, experiment, file_of(root), "gpt", **options)
        delivery.send()
        return delivery.run_id


def client_of(root: Path) -> MlflowClient:
    uri = store.absolute_uri(URI, root)
    return MlflowClient(uri, uri)


def found(root: Path, run_id: str) -> Counter[tuple[str, int]]:
    """How often each (metric, step) is in the run."""
    client = client_of(root)
    keys = client.get_run(run_id).data.metrics
    return Counter((key, one.step) for key in keys for one in client.get_metric_history(run_id, key))


def losses(root: Path, run_id: str) -> list[tuple[int, float]]:
    return [(one.step, one.value) for one in client_of(root).get_metric_history(run_id, "curves/train_loss")]


def test_all_of_a_training_is_there_once(root: Path) -> None:
    watch = train(root, 1, 8)
    weights = root / "model.safetensors"
    weights.write_bytes(b"weights")
    run_id = deliver(root)
    watch.made(weights)
    watch.close()
    assert not points.complete(file_of(root))
    assert deliver(root) == run_id
    assert points.complete(file_of(root))
    assert deliver(root) == run_id

    there = found(root, run_id)
    assert set(there.values()) == {1}
    assert losses(root, run_id) == [(step, 5 / step) for step in range(1, 9)]
    assert {key for key, _ in there} >= {"curves/tokens", "live/train_loss", "live/lr", "live/grad_norm"}
    assert {key for key, _ in there} >= {"live/tokens_per_second", "live/memory_gib", "live/skipped"}
    assert not {key for key, _ in there} & {"live/utilisation", "live/flops_per_second"}  # "unknown" is no number
    run = client_of(root).get_run(run_id)
    assert run.data.tags[points.WEIGHTS] == points.weights_of(file_of(root))
    assert run.info.run_name == "gpt"
    assert run.info.start_time == 5000
    names = [entry.path for entry in client_of(root).list_artifacts(run_id, "samples")]
    assert names == ["samples/step-00000004.txt", "samples/step-00000008.txt"]
    text = download_artifacts(artifact_uri=f"runs:/{run_id}/{names[0]}", tracking_uri=store.absolute_uri(URI, root))
    assert Path(text).read_text(encoding="utf-8") == "to be"


def test_a_resumed_training_sends_the_same_steps_once(root: Path) -> None:
    train(root, 1, 10)
    run_id = deliver(root)
    train(root, 7, 12)  # killed after 10, the last checkpoint was that of 6
    assert [line["step"] for line in Tail(file_of(root)).lines() if line["kind"] == "row"] == list(range(1, 13))
    assert deliver(root) == run_id
    assert set(found(root, run_id).values()) == {1}
    assert losses(root, run_id) == [(step, 5 / step) for step in range(1, 13)]


def test_a_kill_between_the_call_and_the_cursor(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has the points, the cursor does not know; the resumed training made them at another time of day."""
    train(root, 1, 10)
    write = Cursor.write

    def dying(self: Cursor, path: Path) -> None:
        if self.sent:
            raise KeyboardInterrupt
        write(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(Cursor, "write", dying)
        with pytest.raises(KeyboardInterrupt):
            deliver(root)
    assert Cursor.read(file_of(root), TRAINING).under_way
    watch = train(root, 4, 12)
    watch._now = lambda: 9.0
    watch.close()
    run_id = deliver(root)
    assert set(found(root, run_id).values()) == {1}
    assert [step for step, _ in losses(root, run_id)] == list(range(1, 13))


def test_a_lost_cursor_doubles_nothing(root: Path) -> None:
    train(root, 1, 10)
    run_id = deliver(root)
    Cursor.path(file_of(root)).unlink()
    assert deliver(root) == run_id
    assert set(found(root, run_id).values()) == {1}


def test_more_than_a_call_holds(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(root, 1, 10)
    monkeypatch.setattr(points, "MOST_POINTS", 5)
    sizes = []
    log_batch = MlflowClient.log_batch

    def counted(self: MlflowClient, run_id: str, metrics: Any = (), **rest: Any) -> Any:
        sizes.append(len(metrics))
        return log_batch(self, run_id, metrics, **rest)

    monkeypatch.setattr(MlflowClient, "log_batch", counted)
    run_id = deliver(root)
    assert sizes == [4] * 5  # two rows of two numbers a call
    assert len(found(root, run_id)) == 20


def test_another_training_has_another_run(root: Path) -> None:
    train(root, 1, 3)
    first = deliver(root)
    train(root, 1, 4, training="train-gpt-4567")
    second = deliver(root)
    assert first != second
    assert len(losses(root, first)) == 3
    assert len(losses(root, second)) == 4


def test_points_of_a_training_without_a_run_go_where_they_are_told_to(root: Path) -> None:
    """Published before from another folder: that run gets what it lacks."""
    client = client_of(root)
    experiment = store.experiment_id(client, "tiny", store.sqlite_path(URI, root))
    run_id = client.create_run(experiment).info.run_id
    client.log_metric(run_id, "curves/train_loss", 5.0, step=1)
    train(root, 1, 3)
    assert deliver(root, into=run_id) == run_id
    assert set(found(root, run_id).values()) == {1}
    assert len(losses(root, run_id)) == 3


def test_a_half_written_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    tail = Tail(path)
    assert list(tail.lines()) == []
    path.write_text('{"a": 1}\n{"b"')
    assert list(tail.lines()) == [{"a": 1}]
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(": 2}\n")
    assert list(tail.lines()) == [{"b": 2}]
    storage.write_text(path, json.dumps({"new": 1}) + "\n")  # a resumed training replaces the file
    assert list(tail.lines()) == [{"new": 1}]
