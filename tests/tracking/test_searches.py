"""A search in MLflow: one parent, a child a trial, each once whatever happens in between; a store that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest

from lexmill.base import storage
from lexmill.commands.trainings.sending import Sending
from lexmill.compute.execution import Execution
from lexmill.tracking import searches
from lexmill.tracking.searches import SEARCH, STATE, TRIAL, send

METRICS = ("bits_per_byte",)
URI = "sqlite:///mlflow.db"


def made(root: Path, count: int = 3) -> Path:
    """A search with trials, as `lexmill.commands.search` leaves them."""
    folder = root / ".lexmill" / "searches" / "mine-00000000"
    sweep = {"title": "search mine", "identity": "0" * 64, "experiment": "tiny", "model": "gpt"}
    space = '{"high": 0.1, "kind": "log_uniform", "low": 0.001}'
    storage.write_json(folder / "sweep.json", {**sweep, "params": {"seed": 1, "space.optimizer.lr": space}})
    for number in range(1, count + 1):
        trial(folder, number)
    return folder


def trial(folder: Path, number: int) -> None:
    state = ("complete", "pruned", "failed")[(number - 1) % 3]
    path = folder / "trials" / f"{number:04d}.json"
    begun = 1_700_000_000_000 + 1000 * number
    about: dict[str, Any] = {"number": number, "state": state, "values": {"optimizer.lr": number / 100}, "looks": 2}
    about |= {"valid_loss": None if state == "failed" else 5 - number / 10, "started": begun, "seconds": 0.5}
    storage.write_json(path, {**about, "message": "it diverged" if state == "failed" else ""})
    lines: list[dict[str, Any]] = [{"kind": "training", "training": "x", "run": "train-gpt", "time": begun}]
    lines += [{"kind": "row", "step": n, "time": begun + n, "valid_loss": 6 - n, "lr": 0.1} for n in range(3)]
    lines += [{"kind": "live", "step": 2, "time": begun + 3, "tokens_per_second": 9.0, "utilisation": "unknown"}]
    path.with_suffix(".jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def runs(root: Path) -> list[Any]:
    client = mlflow.MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"]))


def test_a_search_is_a_parent_with_a_child_a_trial(root: Path) -> None:
    send(URI, made(root), root, METRICS)
    found = {run.info.run_name: run for run in runs(root)}
    assert set(found) == {"search mine", "gpt 1", "gpt 2", "gpt 3"}
    parent = found["search mine"]
    assert parent.data.params["space.optimizer.lr"] == '{"high": 0.1, "kind": "log_uniform", "low": 0.001}'
    assert parent.data.metrics["best_valid_loss"] == 4.9
    assert "trial 1" in parent.data.tags["mlflow.note.content"]
    assert "`optimizer.lr` = 0.01" in parent.data.tags["mlflow.note.content"]
    for number in (1, 2, 3):
        run = found[f"gpt {number}"]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.tags[TRIAL] == str(number)
        assert run.data.params == {"optimizer.lr": str(number / 100)}
        assert run.data.metrics["curves/valid_loss"] == 4.0
        assert run.data.metrics["live/tokens_per_second"] == 9.0
        assert ("valid_loss" in run.data.metrics) == (number != 3)
    assert [found[f"gpt {n}"].data.tags[STATE] for n in (1, 2, 3)] == ["complete", "pruned", "failed"]
    assert [found[f"gpt {n}"].info.status for n in (1, 2, 3)] == ["FINISHED", "FINISHED", "FAILED"]
    assert found["gpt 3"].data.tags["mlflow.note.content"] == "it diverged"


def test_a_comparison_names_each_model_and_its_note_is_sent_when_it_changes(root: Path) -> None:
    folder = made(root, 2)
    about = storage.read_json(folder / "sweep.json")
    storage.write_json(folder / "sweep.json", about | {"title": "comparison mine", "model": ""})
    for number, name in ((1, "gpt_tiny"), (2, "lstm_tiny")):
        path = folder / "trials" / f"{number:04d}.json"
        storage.write_json(path, storage.read_json(path) | {"model": name, "metrics": {}})
    send(URI, folder, root, METRICS)
    metrics = {"bits_per_byte": 2.5, "interval_unit": "work"}  # as it is evaluated
    storage.write_json(path, storage.read_json(path) | {"metrics": metrics})
    send(URI, folder, root, METRICS)
    (folder / "note.md").write_text("| a table |\n")
    send(URI, folder, root, METRICS)
    send(URI, folder, root, METRICS)
    found = {run.info.run_name: run for run in runs(root)}
    assert set(found) == {"comparison mine", "gpt_tiny 1", "lstm_tiny 2"}
    parent = found["comparison mine"]
    assert parent.data.tags["mlflow.note.content"] == "| a table |\n"
    assert "best_valid_loss" not in parent.data.metrics  # of different models it means little
    assert found["lstm_tiny 2"].data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert found["lstm_tiny 2"].data.metrics["test/bits_per_byte"] == 2.5
    assert "test/bits_per_byte" not in found["gpt_tiny 1"].data.metrics
    assert "test/interval_unit" not in found["lstm_tiny 2"].data.metrics


def test_what_was_sent_is_not_sent_again_whatever_is_forgotten(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(root, 2)
    send(URI, folder, root, METRICS)
    trial(folder, 3)
    real, calls = searches._fill, []

    def killed(*arguments: Any) -> None:
        calls.append(arguments)
        real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(searches, "_fill", killed)
        with pytest.raises(KeyboardInterrupt):
            send(URI, folder, root, METRICS)
    (folder / "sent-trials.json").unlink()
    send(URI, folder, root, METRICS)
    send(URI, folder, root, METRICS)
    found = runs(root)
    assert sorted(run.info.run_name for run in found) == ["gpt 1", "gpt 2", "gpt 3", "search mine"]
    client = mlflow.MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    for run in found:
        if TRIAL in run.data.tags:
            assert len(client.get_metric_history(run.info.run_id, "curves/valid_loss")) == 3
        assert run.data.tags[SEARCH] == "0" * 64


def test_a_store_that_fails_costs_a_search_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(root, 1)
    sending = Sending(Execution(tracking_uri="http://127.0.0.1:9"), root, "search")
    sending(folder)
    sending(folder)
    sending.report()
    message = capsys.readouterr().err
    assert message.count("not in MLflow yet, the search goes on") == 1
    assert "the same command sends them" in message
    back = Sending(Execution(tracking_uri=URI), root, "search")
    back(folder)
    back.report()
    assert capsys.readouterr().err == ""
    assert len(runs(root)) == 2
    silent = Sending(Execution(tracking_uri="http://127.0.0.1:9", publish=False), root, "search")
    trial(folder, 2)
    silent(folder)
    assert len(runs(root)) == 2
