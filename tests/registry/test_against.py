"""What a comparison with the champion is made of: which rows, which guards, at which level; without a registry."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import mlflow.artifacts
import pytest

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.corpora.identity import split_sha256
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import read_rows, write_rows
from lexmill.kinds.classifier.metrics import TEST
from lexmill.params import Guards, Params, Promotion
from lexmill.registry import comparing, package, trial
from lexmill.registry.comparing import Challenger
from lexmill.registry.guards import Guard
from lexmill.registry.lookup import Found
from lexmill.registry.promotion import Decision

Row = dict[str, Any]
CHAMPION = Found("tickets", "1", "", "f" * 64, "classifier", "")
SLICES = Guards(latency=0, size=0, slices=True)


@pytest.fixture
def challenger(params: Params, tmp_path: Path) -> Challenger:
    """Version 2, whose package holds no rows yet."""
    test = {"name": "mail", "sha256": "0" * 64}
    described = {"kind": "classifier", "test_corpus": test, "example": {"input": ["my bill"]}}
    found = dataclasses.replace(CHAMPION, version="2", fingerprint="e" * 64)
    return Challenger(found, tmp_path / "new", described, params, Execution(threads=1), tmp_path)


def _tickets(right: dict[str, int]) -> list[Row]:
    """A hundred tickets of each queue; so many of each, from the first, have their label."""
    return [
        {"id": f"{label}{i}", "group": f"{label}{i}", "label": label, "predicted": label if i < right[label] else "x"}
        for label in right
        for i in range(100)
    ]


def _against(
    challenger: Challenger,
    ours: list[Row],
    theirs: list[Row],
    promotion: Promotion,
    monkeypatch: pytest.MonkeyPatch,
) -> Decision:
    write_rows(challenger.folder / package.ROWS, ours)
    monkeypatch.setattr(comparing, "_rows_of", lambda *_: (theirs, ""))
    monkeypatch.setattr(comparing, "is_fresher", lambda *_: False)
    judged = dataclasses.replace(challenger, params=dataclasses.replace(challenger.params, promotion=promotion))
    return comparing._against(MagicMock(), CHAMPION, judged, lambda _: None)


OLD, NEW = {"a": 50, "b": 50, "c": 90}, {"a": 90, "b": 90, "c": 80}  # p of c: 2 / 2 ** 10


def test_a_slice_is_guarded_at_the_years_level_though_a_promotion_is_not(
    challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A false alarm costs a day, so the level of the slices is not divided over the nights."""
    nightly = Promotion(0.05, 365, guards=SLICES)
    held = _against(challenger, _tickets(NEW), _tickets(OLD), nightly, monkeypatch)
    assert not held.promote
    assert held.reason.startswith("a guarded metric got worse: accuracy on label c 0.800 against 0.900")
    assert [guard.worse for guard in held.guards] == [False, False, True]
    unguarded = dataclasses.replace(nightly, guards=dataclasses.replace(SLICES, slices=False))
    free = _against(challenger, _tickets(NEW), _tickets(OLD), unguarded, monkeypatch)
    assert (free.promote, free.guards) == (True, ())


def test_a_decision_says_against_whom_with_which_data_and_how_it_was_scored(
    challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(challenger.folder / package.ROWS, _tickets(OLD))
    asked: list[tuple[Found, Found]] = []

    def fresher(_client: object, version: Found, champion: Found) -> bool:
        asked.append((version, champion))
        return True

    monkeypatch.setattr(comparing, "_rows_of", lambda *_: (_tickets(NEW), "; scored by whom"))
    monkeypatch.setattr(comparing, "is_fresher", fresher)
    monkeypatch.setattr(comparing.lookup, "client_champion", lambda *_: CHAMPION)
    decision, before = comparing.compared(MagicMock(), challenger, lambda _: None)
    assert before == CHAMPION
    assert asked == [(challenger.found, CHAMPION)]
    assert decision.fresher
    assert " of version 1, p = " in decision.reason
    assert decision.reason.endswith("; scored by whom")


def test_the_guards_of_the_package_and_of_the_slices_both_count(
    challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = Guard("size", 1.0, 2.0, 1.5, True, "size too large")
    monkeypatch.setattr(comparing, "_by_package", lambda *_: [large])
    found = _against(challenger, _tickets(NEW), _tickets(OLD), Promotion(0.05, 365, guards=SLICES), monkeypatch)
    assert not found.promote
    assert [guard.name for guard in found.guards if guard.worse] == ["size", "slice label c"]


def test_slices_are_compared_on_the_items_that_both_saw(
    challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = [{**row, "id": f"new {row['id']}"} for row in _tickets({"c": 0})]
    ours = [*new, *_tickets({**NEW, "c": 95})]
    found = _against(challenger, ours, _tickets(OLD)[::-1], Promotion(0.05, 365, guards=SLICES), monkeypatch)
    assert found.promote
    assert [(guard.name, guard.challenger, guard.champion) for guard in found.guards] == [
        ("slice label a", 0.9, 0.5),
        ("slice label b", 0.9, 0.5),
        ("slice label c", 0.95, 0.9),
    ]


def test_a_version_that_lost_is_not_guarded(challenger: Challenger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its champion is not even downloaded."""

    def never(*_: object) -> Path:
        raise AssertionError("the champion's package was asked for")

    monkeypatch.setattr(comparing, "registered_package", never)
    found = _against(challenger, _tickets(OLD), _tickets(NEW), Promotion(0.05, 1), monkeypatch)
    assert found.reason.startswith("worse: accuracy")
    assert (found.promote, found.guards) == (False, ())


def _folders(challenger: Challenger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The champion's model has 100 bytes, the challenger's 120; only the champion's package can be downloaded."""
    champion = challenger.root / "old"
    for folder, size in ((champion, 100), (challenger.folder, 120)):
        storage.write_bytes(folder / package.MODEL / "model.safetensors", b"x" * size)
    monkeypatch.setattr(comparing, "registered_package", lambda found, *_: {CHAMPION: champion}[found])


def test_the_guards_of_time_and_size_compare_the_new_with_the_old(
    challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    _folders(challenger, monkeypatch)
    times = {"old": 1.0, "new": 1.2}
    monkeypatch.setattr(
        trial,
        "times",
        lambda first, second, *_: {"champion": [times[first.name]], "challenger": [times[second.name]]},
    )
    found = comparing._by_package(CHAMPION, challenger)
    assert [(guard.name, guard.champion, guard.challenger) for guard in found] == [
        ("median latency", 1.0, 1.2),
        ("95th percentile latency", 1.0, 1.2),
        ("size", 100.0, 120.0),
    ]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (Guards(latency=1.5, size=0), ["median latency", "95th percentile latency"]),
        (Guards(latency=0, size=1.5), ["size"]),
        (Guards(latency=0, size=0), []),
    ],
)
def test_each_guard_of_a_package_is_turned_off_alone(
    chosen: Guards, names: list[str], challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both off the champion's package is not even downloaded: that would be a KeyError here."""
    _folders(challenger, monkeypatch)
    monkeypatch.setattr(trial, "times", lambda *_: {"champion": [1.0], "challenger": [1.0]})
    promotion = dataclasses.replace(challenger.params.promotion, guards=chosen)
    judged = dataclasses.replace(challenger, params=dataclasses.replace(challenger.params, promotion=promotion))
    champion = CHAMPION if names else dataclasses.replace(CHAMPION, version="9")
    assert [guard.name for guard in comparing._by_package(champion, judged)] == names


def test_models_are_timed_with_the_params_of_their_kind(
    challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def times(*arguments: Any) -> dict[str, list[float]]:
        asked.extend(arguments)
        return {"champion": [1.0], "challenger": [1.0]}

    monkeypatch.setattr(comparing, "registered_package", lambda *_: challenger.root / "old")
    monkeypatch.setattr(trial, "times", times)
    comparing._by_package(dataclasses.replace(CHAMPION, kind="language_model"), challenger)
    timed = {"max_tokens": 24, "temperature": 0.0}
    assert asked == [challenger.root / "old", challenger.folder, ["my bill"], timed, challenger.execution]


@pytest.mark.parametrize("key", ["text", "source", "words"])
def test_texts_of_a_timing_are_spread_over_the_test_split_and_short(key: str, challenger: Challenger) -> None:
    folder = challenger.root / layout.corpus("mail")
    values = [f"{i} {'x' * 500}" for i in range(48)]
    of_key = [value.split() if key == "words" else value for value in values]
    lines = [json.dumps({"id": str(i), key: value, "target": "y"}) for i, value in enumerate(of_key)]
    storage.write_text(folder / "test-00000.jsonl", "".join(line + "\n" for line in lines))
    split = {"records": 48, "shards": [{"path": "test-00000.jsonl", "records": 48, "sha256": "0" * 64}]}
    manifest = {"kind": "labelled", "unit": "record", "languages": ["en"], "splits": {"test": split}}
    storage.write_json(folder / "manifest.json", manifest)
    texts = comparing._texts(challenger)
    assert [text.split()[0] for text in texts] == [str(i) for i in range(0, 48, 2)]
    assert {len(text) for text in texts} == {400}


def test_without_a_split_the_packages_examples_are_timed(challenger: Challenger) -> None:
    assert comparing._texts(challenger) == ["my bill"]
    bare = dataclasses.replace(challenger, description={**challenger.description, "example": {"input": []}})
    assert comparing._texts(bare) == ["a"]


def test_the_paired_test_resamples_by_the_params(challenger: Challenger) -> None:
    evaluation = dataclasses.replace(challenger.params.evaluation, bootstrap_samples=300, confidence=0.9)
    params = dataclasses.replace(challenger.params, evaluation=evaluation, data_seed=5)
    assert dataclasses.replace(challenger, params=params).resampling == Resampling(300, 0.9, 5)


def test_what_cannot_be_compared_stays_and_says_why(challenger: Challenger, monkeypatch: pytest.MonkeyPatch) -> None:
    other = dataclasses.replace(CHAMPION, kind="translator")
    decision = comparing._against(MagicMock(), other, challenger, lambda _: None)
    assert (decision.promote, decision.comparison) == (False, None)
    assert decision.reason.startswith("version 1 is translator, this one classifier; give it another name")
    foreign = dataclasses.replace(CHAMPION, kind="")
    decision = comparing._against(MagicMock(), foreign, challenger, lambda _: None)
    assert decision.reason.startswith("version 1 is no model of ours, this one classifier; give it another name")
    write_rows(challenger.folder / package.ROWS, _tickets({"a": 1}))
    monkeypatch.setattr(comparing, "_rows_of", lambda *_: (None, "; no reason"))
    decision = comparing._against(MagicMock(), CHAMPION, challenger, lambda _: None)
    assert (decision.promote, decision.comparison) == (False, None)
    assert decision.reason.startswith(
        "version 1 has no test rows to compare with; no reason; `lexmill promote tickets`"
    )


def test_a_version_where_none_is_champion_is_champion(challenger: Challenger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing.lookup, "client_champion", lambda *_: None)
    metrics = {"test": {"accuracy": 0.8}, "baselines": {}}
    judged = dataclasses.replace(challenger, description={**challenger.description, "metrics": metrics})
    decision, before = comparing.compared(MagicMock(), judged, lambda _: None)
    assert (decision.promote, decision.reason, before) == (True, "no version was champion", None)


def test_what_cannot_be_measured_holds_nothing_back(challenger: Challenger, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> Any:
        raise UserError("the files are gone")

    def failed(*_: object) -> Any:
        raise trial.TrialFailed("no memory")

    _folders(challenger, monkeypatch)
    monkeypatch.setattr(trial, "times", failed)
    latency, size = comparing._by_package(CHAMPION, challenger)
    assert (latency.worse, size.name) == (False, "size")
    assert "no memory" in latency.words
    monkeypatch.setattr(comparing, "registered_package", gone)
    (guard,) = comparing._by_package(CHAMPION, challenger)
    assert not guard.worse
    assert "version 1 cannot be downloaded (the files are gone)" in guard.words


@pytest.fixture
def rescore(challenger: Challenger, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Ask for the champion's rows on a test split; how often it was scored so far."""
    made: list[Path] = []
    said: list[None] = []

    def score(model: Path, corpus: Path, _evaluation: object, _execution: object, target: Path) -> None:
        assert (model, corpus) == (challenger.root / "old", challenger.root / layout.corpus("mail"))
        made.append(target)
        write_rows(target, [{"id": len(made)}])

    monkeypatch.setattr(trial, "score", score)
    monkeypatch.setattr(
        comparing, "registered_package", lambda found, *_: {"1": challenger.root / "old"}[found.version]
    )

    def ask(shard: str = "a", champion: Found = CHAMPION, described: str = "", **evaluation: Any) -> int:
        test_split = {"records": 1, "shards": [{"path": "test-00000.jsonl", "records": 1, "sha256": shard * 64}]}
        manifest = {"kind": "labelled", "unit": "record", "languages": ["en"], "splits": {"test": test_split}}
        storage.write_json(challenger.root / layout.corpus("mail") / "manifest.json", manifest)
        test = {"name": "mail", "sha256": described or split_sha256(manifest, "test")}
        settings = dataclasses.replace(challenger.params.evaluation, **evaluation)
        asked = dataclasses.replace(
            challenger,
            description={**challenger.description, "test_corpus": test},
            params=dataclasses.replace(challenger.params, evaluation=settings),
        )
        (row,) = comparing._rescored(champion, asked, lambda: said.append(None))
        assert len(said) == len(made), "said where it is not scored, or not said"
        assert row == {"id": len(made)}
        assert read_rows(made[-1]) == [row]
        (kept,) = (challenger.root / comparing.RESCORED / "tickets").iterdir()
        assert kept == made[-1], "the rows of before are gone"
        return len(made)

    return ask


def test_a_champion_is_scored_again_where_anything_that_shapes_its_rows_differs(
    rescore: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [rescore(), rescore()] == [1, 1]
    assert rescore(shard="b") == 2
    assert rescore(shard="b", batch_tokens=512) == 3
    other = dataclasses.replace(CHAMPION, fingerprint="d" * 64)
    assert [rescore("b", other, batch_tokens=512), rescore("b", other, batch_tokens=512)] == [4, 4]
    versions = Counter[str]()
    monkeypatch.setattr(comparing.Code, "digest", lambda _, *modules: str([versions[one] for one in modules]))
    assert rescore("b", other, batch_tokens=512) == 5
    for count, module in ((6, "lexmill.kinds.classifier.evaluate"), (7, "lexmill.models.folder")):
        versions[module] += 1
        assert rescore("b", other, batch_tokens=512) == count


def test_a_champion_is_not_scored_on_another_test_split_than_the_challenger(rescore: Callable[..., int]) -> None:
    with pytest.raises(UserError, match="the prepared corpus 'mail' is no longer the one of the test"):
        rescore(described="0" * 64)


def _version(number: int, data: str) -> Any:
    return MagicMock(version=str(number), tags={"lexmill.train_data": data} if data else {})


@pytest.mark.parametrize(
    ("data", "champion", "fresher"),
    [
        (["a", "b"], 1, True),
        (["a", "a"], 1, False),
        (["a", "b", "a"], 2, False),  # back to the old data
        (["a", "b", "b"], 1, True),
        (["", "b"], 1, False),
        (["a", ""], 1, False),
    ],
)
def test_fresher_are_data_that_the_registry_saw_first_after_the_champions(
    data: list[str], champion: int, fresher: bool
) -> None:
    client = MagicMock()
    newest, present = (dataclasses.replace(CHAMPION, version=str(one)) for one in (len(data), champion))
    versions = [_version(i, one) for i, one in enumerate(data, start=1)]
    for found in (versions, versions[::-1]):
        client.search_model_versions.return_value = found
        assert comparing.is_fresher(cast(Any, client), newest, present) == fresher
    assert client.search_model_versions.call_args.args == ("name = 'tickets'",)


def test_a_version_that_is_champion_already_is_not_compared_with_itself(
    challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing.lookup, "client_champion", lambda *_: challenger.found)
    decision, before = comparing.compared(MagicMock(), challenger, lambda _: None)
    assert (decision.promote, before) == (True, None)
    assert "made champion before" in decision.reason


@pytest.mark.parametrize("error", [trial.TrialFailed("KeyError: x"), UserError("the files are gone")])
def test_a_champion_that_cannot_be_scored_is_compared_by_its_stored_rows(
    error: Exception, challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> list[Row]:
        raise error

    stored = _tickets({"a": 50})[:50]
    monkeypatch.setattr(comparing, "_stored_rows", lambda _: stored)
    monkeypatch.setattr(comparing, "_rescored", fails)
    found, note = comparing._rows_of(CHAMPION, challenger, TEST, _tickets({"a": 50}), lambda _: None)
    assert found is stored
    assert note == f"; version 1 could not be scored anew ({error})"


def test_the_stored_rows_are_those_of_that_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The champion may be another one when its rows are read; a package without rows has none to download."""
    rows = tmp_path / package.ROWS
    write_rows(rows, [{"id": "a"}])
    listed: list[str] = []

    def there(artifact_uri: str) -> list[Any]:
        return [MagicMock(path=f"data/tickets/{name}") for name in listed]

    def download(artifact_uri: str, dst_path: str) -> str:
        assert artifact_uri == f"models:/tickets/1/data/tickets/{package.ROWS}"
        assert listed
        return str(rows)

    monkeypatch.setattr(mlflow.artifacts, "list_artifacts", there)
    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", download)
    assert comparing._stored_rows(CHAMPION) is None
    listed.extend(["package.json", package.ROWS])
    assert comparing._stored_rows(CHAMPION) == [{"id": "a"}]


@pytest.mark.parametrize(
    ("stored", "rescored"),
    [
        ({"a": 50}, False),
        ({"a": 50, "b": 50}, True),  # the split has lost items
        ({"b": 50}, True),
        (None, True),
    ],
)
def test_stored_rows_are_used_for_the_very_same_items(
    stored: dict[str, int] | None, rescored: bool, challenger: Challenger, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = None if stored is None else _tickets(stored)[::-1]
    monkeypatch.setattr(comparing, "_stored_rows", lambda _: rows)
    said: list[str] = []

    def rescore(_champion: Found, _challenger: Challenger, announce: Callable[[], None]) -> list[Row]:
        announce()
        return []

    monkeypatch.setattr(comparing, "_rescored", rescore)
    ours = _tickets({"a": 50})
    found, note = comparing._rows_of(CHAMPION, challenger, TEST, ours, said.append)
    why = "it has no test rows" if stored is None else "the test data changed"
    scored = f"tickets: version 1 is scored on the present test split, for {why}"
    assert said == ([scored] if rescored else [])
    assert (found, "was scored anew" in note) == (([], True) if rescored else (rows, False))
    relabelled = [{**row, "label": "b"} for row in ours]
    assert comparing._rows_of(CHAMPION, challenger, TEST, relabelled, lambda _: None)[0] == []
