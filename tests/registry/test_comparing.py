"""A new version beside the champion: the same test data for both, fresher data reported, guards kept, all for real."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from lexmill.base import layout, storage
from lexmill.compute.execution import Execution
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.rows import read_rows, write_rows
from lexmill.params import Evaluation, Guards, Params, Promotion
from lexmill.registry import comparing, decisions, package, trial
from lexmill.registry.loader import load_package
from lexmill.registry.lookup import Found
from lexmill.registry.publish import Outcome, publish_all

from .conftest import KINDS, make

EXECUTION = Execution(tracking_uri="sqlite:///mlflow.db", threads=1)
TEXTS = {
    "gpt": lambda i: {"text": f"ROMEO and the {i} roses " * 20},
    "tickets": lambda i: {"text": f"my bill number {i}", "label": ("billing", "other")[i % 2]},
    "en_de": lambda i: {"source": f"good day {i}", "target": f"guten tag {i}"},
}
CORPUS = {"gpt": ("plays", "text"), "tickets": ("mail", "labelled"), "en_de": ("pairs", "parallel")}


def prepare(root: Path, name: str, items: int) -> None:
    """A prepared corpus whose test split has so many items; train counts as it stands."""
    corpus, kind = CORPUS[name]
    folder = root / layout.corpus(corpus)
    lines = [{"id": f"{name}-{i}", "group": f"group-{i // 2}", **TEXTS[name](i)} for i in range(items)]
    storage.write_text(folder / "test-00000.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    shard = {"path": "test-00000.jsonl", "records": items, "bytes": 9}
    test = {"records": items, "shards": [{**shard, "sha256": storage.sha256_file(folder / "test-00000.jsonl")}]}
    train = {"records": 60, "groups": 30, "shards": [{**shard, "sha256": "0" * 64}]}
    languages = ["en", "de"] if kind == "parallel" else ["en"]
    manifest = {"kind": kind, "unit": "group", "languages": languages, "splits": {"train": train, "test": test}}
    storage.write_json(folder / "manifest.json", manifest)


def scored(params: Params, root: Path, name: str, items: int, seed: int) -> None:
    """A model with the rows that it really has on a test split of so many items."""
    make(params, root, name, seed=seed)
    prepare(root, name, items)
    package.write(params, name, root)
    corpus = PreparedCorpus(root / layout.corpus(CORPUS[name][0]))
    rows = trial.rows_on_test(load_package(root / layout.package(name)), corpus, params.evaluation)
    write_rows(root / layout.predictions(name) / "rows.jsonl", rows)
    package.write(params, name, root)


def publish(params: Params, root: Path) -> tuple[Outcome, str]:
    said: list[str] = []
    (outcome,) = publish_all(params, EXECUTION, said.append, root)
    return outcome, "\n".join(said)


@pytest.mark.parametrize("name", KINDS)
def test_an_item_of_a_grown_split_is_scored_as_before(name: str, params: Params, tmp_path: Path) -> None:
    scored(params, tmp_path, name, 10, seed=0)
    first = read_rows(tmp_path / layout.predictions(name) / "rows.jsonl")
    scored(params, tmp_path, name, 15, seed=0)
    again = {row["id"]: row for row in read_rows(tmp_path / layout.predictions(name) / "rows.jsonl")}
    assert len(again) == 15
    for row in first:
        for key, value in row.items():
            near = key in ("nats", "probabilities")
            assert again[row["id"]][key] == (pytest.approx(value, rel=1e-5) if near else value)


def test_a_champion_is_scored_anew_where_the_test_split_has_changed_and_only_once(
    params: Params, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "en_de"
    scored(params, root, name, 30, seed=0)
    assert publish(params, root)[0].champion
    first = read_rows(root / layout.predictions(name) / "rows.jsonl")

    scored(params, root, name, 45, seed=1)
    outcome, said = publish(params, root)
    assert f"{name}: version 1 is scored on the present test split, for the test data changed" in said
    assert "version 1 was scored anew on the present test split" in outcome.reason
    assert "that both saw" not in outcome.reason
    (kept,) = (root / comparing.RESCORED / name).iterdir()
    again = read_rows(kept)
    assert len(again) == 45
    for row in first:
        assert row in again

    def never(*_: object) -> None:
        raise AssertionError("scored a second time")

    monkeypatch.setattr(trial, "score", never)
    make(params, root, name, seed=2)
    prepare(root, name, 45)
    write_rows(root / layout.predictions(name) / "rows.jsonl", again)
    package.write(params, name, root)
    tie, _ = publish(params, root)
    assert tie.reason.startswith("no better: ")


def test_a_champion_that_cannot_be_loaded_is_compared_on_what_both_saw(
    params: Params, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored(params, root, "tickets", 30, seed=0)
    publish(params, root)
    scored(params, root, "tickets", 45, seed=1)

    def broken(*_: object) -> None:
        raise trial.TrialFailed("KeyError: 'an older field'")

    monkeypatch.setattr(trial, "score", broken)
    outcome, _ = publish(params, root)
    assert "on the 30 of 45 test items that both saw" in outcome.reason
    assert "version 1 could not be scored anew (KeyError: 'an older field')" in outcome.reason


def test_a_trial_tells_why_it_failed(params: Params, root: Path) -> None:
    make(params, root, "tickets")
    prepare(root, "tickets", 4)
    folder = package.write(params, "tickets", root)
    (folder / "model" / "config.json").unlink()
    with pytest.raises(trial.TrialFailed, match="the package was changed after it was made"):
        trial.score(folder, root / layout.corpus("mail"), params.evaluation, EXECUTION, root / "rows.jsonl")


def test_two_packages_are_timed_for_real(params: Params, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the clock of the other tests
    make(params, root, "gpt")
    folder = package.write(params, "gpt", root)
    found = trial.times(folder, folder, ["ROMEO", "a"], {"max_tokens": 3, "temperature": 0.0}, EXECUTION)
    assert {name: len(seconds) for name, seconds in found.items()} == {"champion": 2, "challenger": 2}
    assert all(0 < second < 60 for seconds in found.values() for second in seconds)
    (folder / "model" / "model.safetensors").unlink()
    assert trial.times(folder, folder, ["a"], {}, EXECUTION)["failed"] == "champion"


def test_a_trial_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    request = tmp_path / "request"
    os.mkfifo(request)  # it waits for what nobody writes
    command = [sys.executable, "-m", "lexmill.registry.trial", str(request), str(tmp_path / "result")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.stdin.close()
        assert process.wait(120) == 143


def test_a_trial_is_ended_where_the_wait_for_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if not started:
                started.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        trial.score(tmp_path, tmp_path, Evaluation(), EXECUTION, tmp_path / "rows")
    assert started[0].poll() == -signal.SIGKILL


def _stands(params: Params, root: Path, quality: float, seed: int, train: str = "0") -> Outcome:
    make(params, root, "en_de", quality, seed)
    path = root / layout.corpus("pairs") / "manifest.json"
    manifest: dict[str, Any] = storage.read_json(path)
    manifest["splits"]["train"]["shards"] = [{"sha256": train * 64}]
    storage.write_json(path, manifest)
    package.write(params, "en_de", root)
    return publish(params, root)[0]


def test_a_larger_slower_or_partly_worse_model_does_not_replace_a_champion(
    params: Params, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _stands(params, root, 0.3, 0).champion
    monkeypatch.setattr(trial, "times", lambda *_: {"champion": [0.01] * 9, "challenger": [0.02] * 9})
    slow = _stands(params, root, 0.9, 1)
    assert not slow.champion
    assert slow.reason.startswith("a guarded metric got worse: median latency 20.00 ms against 10.00 ms, 2.00 times")
    assert "the test itself said better: bleu" in slow.reason
    (row,) = [row for row in decisions.rows(root) if row["version"] == slow.version]
    assert "median latency 20.00 ms" in row["guards"]
    assert "size" in row["guards"]

    open_to_all = Promotion(0.05, 1, guards=Guards(latency=0, size=0, slices=False))
    assert _stands(dataclasses.replace(params, promotion=open_to_all), root, 0.9, 2).champion


def test_data_that_the_registry_saw_later_are_fresher(params: Params, root: Path) -> None:
    margin = dataclasses.replace(params, promotion=Promotion(0.05, 1, 0.5, guards=Guards(latency=0, size=0)))
    assert _stands(margin, root, 0.8, 0, train="a").champion
    rows = (root / layout.predictions("en_de") / "rows.jsonl").read_bytes()

    def equal(seed: int, train: str) -> Outcome:
        _write = package.write
        make(margin, root, "en_de", 0.8, seed)
        (root / layout.predictions("en_de") / "rows.jsonl").write_bytes(rows)
        path = root / layout.corpus("pairs") / "manifest.json"
        manifest = storage.read_json(path)
        manifest["splits"]["train"]["shards"] = [{"sha256": train * 64}]
        storage.write_json(path, manifest)
        _write(margin, "en_de", root)
        return publish(margin, root)[0]

    assert equal(1, "a").reason.startswith("no better: ")  # the same data
    newer = equal(2, "b")
    assert newer.champion
    assert newer.reason.startswith("its data are fresher and it is worse by less than 50.0%")
    assert not equal(3, "a").champion  # back to the old data
    assert decisions.read(root)[0]["fresher"] is False


def test_a_first_version_below_its_baselines_is_champion_and_says_so(
    params: Params, execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing.lookup, "client_champion", lambda *_: None)

    def reason(accuracy: float, **more: Any) -> str:
        metrics = {"test": {"accuracy": accuracy}, "baselines": {"majority": {"accuracy": 0.5}}, **more}
        described = {"kind": "classifier", "metrics": metrics}
        found = Found("tickets", "1", "", "", "classifier", "")
        challenger = comparing.Challenger(found, tmp_path, described, params, execution, tmp_path)
        decision, before = comparing.compared(MagicMock(), challenger, lambda _: None)
        assert decision.promote
        assert before is None
        return decision.reason

    assert reason(0.8) == "the first version"
    assert reason(0.4) == "the first version, though on accuracy it does not beat majority"
    said = "the first version, though it is not compared with a and b, measured on another test set"
    assert reason(0.8, baselines={}, not_compared=["a", "b"]) == said
    both = "the first version, though on accuracy it does not beat majority and it is not compared with a, measured on"
    assert reason(0.4, not_compared=["a"]) == f"{both} another test set"
