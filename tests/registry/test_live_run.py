"""The run that saw a training is the one that publishing completes, and no point is in it twice."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from lexmill.base import layout, storage
from lexmill.commands import sync
from lexmill.compute.execution import Execution
from lexmill.models.folder import WEIGHTS
from lexmill.params import Params
from lexmill.registry import deciding, package
from lexmill.registry.publish import publish_all
from lexmill.runner.graph import Plan
from lexmill.runner.record import RunRecord
from lexmill.runner.supervised import Outcome
from lexmill.tracking import points, store
from lexmill.tracking.points import Delivery

from .conftest import make

URI = "sqlite:///mlflow.db"
FILE = points.file_of("train", "en_de")
STEPS = 10  # of the curve that `make` writes


def write_points(
    root: Path, steps: int = STEPS, made: str = "", training: str = "train-en_de-1", token: str = ""
) -> None:
    """What a training has written after so many of its steps."""
    lines: list[dict[str, Any]] = [{"kind": "training", "training": training, "run": "train-en_de"}]
    lines.append({"kind": "begin", "step": 0, "token": token})
    for step in range(steps):
        lines.append({"kind": "row", "step": step, "train_loss": 5 / (step + 1), "lr": 0.001})
        lines.append({"kind": "live", "step": step, "tokens_per_second": 100.5 + step, "utilisation": "unknown"})
    if made:
        lines.append({"kind": "made", "step": steps, "weights": made})
    text = "".join(json.dumps({"time": 1000 + n, **line}) + "\n" for n, line in enumerate(lines))
    storage.write_text(root / FILE, text)


def weights_of(root: Path) -> str:
    return storage.sha256_file(root / layout.model("en_de") / WEIGHTS)


def send(root: Path, params: Params) -> str:
    """What the process beside the training does."""
    with store.opened(URI, root) as client:
        experiment = store.experiment_id(client, params.experiment, store.sqlite_path(URI, root))
        delivery = Delivery(client, experiment, root / FILE, "en_de")
        delivery.send()
        return delivery.run_id


def client_of(root: Path) -> MlflowClient:
    uri = store.absolute_uri(URI, root)
    return MlflowClient(uri, uri)


def runs(root: Path) -> list[Any]:
    client = client_of(root)
    return list(client.search_runs([one.experiment_id for one in client.search_experiments()]))


def counted(root: Path, run_id: str) -> Counter[tuple[str, int]]:
    client = client_of(root)
    keys = client.get_run(run_id).data.metrics
    return Counter((key, one.step) for key in keys for one in client.get_metric_history(run_id, key))


def assert_complete(root: Path, run_id: str) -> None:
    """One run with everything of the training and of the publishing, each point once."""
    there = counted(root, run_id)
    assert set(there.values()) == {1}
    assert {step for key, step in there if key == "curves/train_loss"} == set(range(STEPS))
    assert {step for key, step in there if key == "live/tokens_per_second"} == set(range(STEPS))
    assert ("curves/epoch", 0) in there  # from the curve's file: the points of the training have none
    run = client_of(root).get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["lexmill.fingerprint"] == package.read(root / layout.package("en_de"))["fingerprint"]
    assert run.data.params["model.shape.d_model"] == "16"
    assert run.data.metrics["test/bleu"] == 20.5


def publish_it(params: Params, root: Path) -> str:
    package.write(params, "en_de", root)
    (outcome,) = publish_all(params, Execution(tracking_uri=URI), lambda _: None, root)
    return outcome.run_id


def test_publishing_completes_the_run_that_saw_the_training(params: Params, root: Path) -> None:
    make(params, root, "en_de")
    write_points(root, 4)
    seen = send(root, params)
    write_points(root, made=weights_of(root))
    assert send(root, params) == seen
    assert publish_it(params, root) == seen
    assert [run.info.run_id for run in runs(root)] == [seen]
    assert_complete(root, seen)


def test_what_an_outage_left_is_sent_by_publishing(params: Params, root: Path) -> None:
    make(params, root, "en_de")
    write_points(root, 4)
    seen = send(root, params)
    write_points(root, made=weights_of(root))  # the store was away from here on
    assert publish_it(params, root) == seen
    assert [run.info.run_id for run in runs(root)] == [seen]
    assert_complete(root, seen)


def test_another_store_has_one_run_of_a_training_that_the_first_has_seen(
    params: Params, root: Path, empty_store: Path
) -> None:
    make(params, root, "en_de")
    write_points(root, made=weights_of(root))
    send(root, params)
    package.write(params, "en_de", root)
    other = root / "other"
    shutil.copytree(empty_store, other)
    settings = Execution(tracking_uri=f"sqlite:///{other}/mlflow.db")
    (outcome,) = publish_all(params, settings, lambda _: None, root)
    sync.send(params, settings, lambda _: None, root)
    (run,) = runs(other)
    assert run.info.run_id == outcome.run_id
    there = counted(other, outcome.run_id)
    assert set(there.values()) == {1}
    assert {step for key, step in there if key == "live/tokens_per_second"} == set(range(STEPS))


def test_a_training_that_nobody_sent_has_one_run_too(params: Params, root: Path) -> None:
    make(params, root, "en_de")
    write_points(root, made=weights_of(root))
    run_id = publish_it(params, root)
    assert [run.info.run_id for run in runs(root)] == [run_id]
    assert_complete(root, run_id)


@pytest.mark.parametrize("published", [True, False])
def test_evaluating_and_registering_a_model_is_logged_into_its_run_a_child_of_the_pipelines(
    params: Params, root: Path, published: bool
) -> None:
    """Before it is published the run of its training is the model's; nothing is there twice when both were at it."""
    make(params, root, "en_de")
    stages = [f"{group}@en_de" for group in ("train", "evaluate", "register")]
    record = RunRecord.start(root, "d" * 32, "lexmill run", "run", Plan(()), experiment=params.experiment)
    write_points(root, made=weights_of(root), token=record.token)
    for stage in stages:
        record.stage(Outcome(stage, "ran", 0, 2.5))
    record.end(0)
    execution = Execution(tracking_uri=URI)
    if published:
        publish_it(params, root)
    sync.send(params, execution, lambda _: None, root)
    if not published:
        publish_it(params, root)
        assert not sync.send(params, execution, lambda _: None, root)
    by_name = {run.info.run_name: client_of(root).get_run(run.info.run_id) for run in runs(root)}
    assert len(by_name) == 2
    model = by_name.pop("en_de")
    (parent,) = by_name.values()
    assert model.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert_complete(root, model.info.run_id)
    assert model.data.metrics["test/bleu"] == 20.5
    for group in ("train", "evaluate", "register"):
        assert model.data.metrics[f"stages/{group}/seconds"] == 2.5
    table = client_of(root).get_run(parent.info.run_id).data.tags["mlflow.note.content"]
    assert table.count(model.info.run_id) == 3


def test_points_of_other_weights_are_left_alone(params: Params, root: Path) -> None:
    """The package is an older one, restored from the cache; the training that goes on has its own run."""
    make(params, root, "en_de")
    write_points(root, 4)
    seen = send(root, params)
    run_id = publish_it(params, root)
    assert run_id != seen
    assert len(runs(root)) == 2
    assert not any(key.startswith("live/") for key, _ in counted(root, run_id))


def test_another_package_of_the_same_weights_has_a_run_of_its_own(params: Params, root: Path) -> None:
    """Evaluated again with another beam: the first run is that of the first package."""
    make(params, root, "en_de")
    write_points(root, made=weights_of(root))
    first = publish_it(params, root)
    make(params, root, "en_de", quality=0.6)
    assert weights_of(root) == points.weights_of(root / FILE)
    second = publish_it(params, root)
    assert first != second
    assert client_of(root).get_run(first).data.tags[points.WEIGHTS] == weights_of(root)
    assert set(counted(root, first).values()) == set(counted(root, second).values()) == {1}


def test_a_repeated_training_of_a_published_model_adds_what_is_new_to_its_run(
    params: Params, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dvc repro -f` in a workspace that pulled the model: the same weights, and points that MLflow does not have."""
    make(params, root, "en_de")
    published = publish_it(params, root)
    write_points(root, made=weights_of(root))
    assert publish_it(params, root) == published
    assert [run.info.run_id for run in runs(root)] == [published]
    assert_complete(root, published)

    def never(*_: object) -> None:
        raise AssertionError("MLflow was opened")

    monkeypatch.setattr(deciding, "opened", never)
    assert publish_it(params, root) == published  # all is sent, and no store need be opened to know it
