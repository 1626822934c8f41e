"""The decisions as a workspace stores them, and the table that is made of them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from lexmill.base.storage import read_json
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.classifier.metrics import TEST
from lexmill.params import Promotion
from lexmill.registry import decisions
from lexmill.registry.guards import Guard
from lexmill.registry.promotion import Decision, decide

from .conftest import rows_of

FIRST = Decision(True, "the first version")


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The next moments, the last of which lasts."""
    coming = ["2026-11-29T03:00:00.000Z"]
    monkeypatch.setattr(decisions, "now", lambda: coming.pop(0) if len(coming) > 1 else coming[0])
    return coming


def keep(root: Path, version: str, decision: Decision = FIRST, name: str = "tickets", **more: Any) -> dict[str, Any]:
    against = {"champion_version": None, "approved": None, **more}
    return decisions.keep(
        root, name=name, kind="classifier", version=version, run_id=f"run-{version}", decision=decision, **against
    )


def test_a_moment_is_in_utc_and_sorts_as_text() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)  # a moment is cut to the millisecond
    text = decisions.now()
    assert before <= datetime.fromisoformat(text) <= datetime.now(UTC)
    assert text.endswith("Z")
    assert len(text) == len("2026-11-29T03:00:00.000Z")


def test_a_decision_is_stored_whole_and_over_an_earlier_one(tmp_path: Path, times: list[str]) -> None:
    assert keep(tmp_path, "2")["approved"] is None  # nobody was asked
    refused = Decision(False, "not approved: better", fresher=True)
    record = keep(tmp_path, "2", refused, champion_version="1", approved=False)
    (path,) = (tmp_path / ".lexmill/decisions").iterdir()
    assert path.name == "tickets-v2.json"
    assert read_json(path) == record
    nothing = dict.fromkeys(("comparison", "level", "power", "least_gain"))
    assert record == {
        "decided": times[0],
        "name": "tickets",
        "kind": "classifier",
        "version": "2",
        "run_id": "run-2",
        "champion_version": "1",
        "approved": False,
        "outcome": "stays",
        "promote": False,
        "reason": "not approved: better",
        "fresher": True,
        "guards": [],
        **nothing,
    }


def test_moves_by_hand_stand_beside_the_decisions_the_newest_first(tmp_path: Path, times: list[str]) -> None:
    times[:] = [f"2026-11-29T0{hour}:00:00.000Z" for hour in (3, 5, 4, 6)]
    keep(tmp_path, "2")
    for version, before in (("1", "2"), ("2", "1")):
        moved = {"version": version, "before": before, "outcome": "promoted by hand", "reason": f"to {version}"}
        with decisions.by_hand(tmp_path, name="tickets", **moved):
            assert not any(one["reason"] == f"to {version}" for one in decisions.read(tmp_path))  # not yet
    keep(tmp_path, "3", Decision(False, "worse"), champion_version="2")
    shown = ("decided", "version", "against", "outcome", "reason")
    assert [tuple(row[key] for key in shown) for row in decisions.rows(tmp_path)] == [
        ("2026-11-29T06:00:00.000Z", "3", "2", "stays", "worse"),
        ("2026-11-29T05:00:00.000Z", "1", "2", "promoted by hand", "to 1"),
        ("2026-11-29T04:00:00.000Z", "2", "1", "promoted by hand", "to 2"),
        ("2026-11-29T03:00:00.000Z", "2", None, "champion", "the first version"),
    ]
    assert [one["promote"] for one in decisions.read(tmp_path)] == [False, True, True, True]


def test_decisions_of_the_same_moment_are_in_the_order_of_names_and_versions(tmp_path: Path, times: list[str]) -> None:
    for version in ("9", "10", "2", "odd"):
        keep(tmp_path, version)
    keep(tmp_path, "1", name="gpt")
    keep(tmp_path, "1", name="words")
    found = [(one["name"], one["version"]) for one in decisions.read(tmp_path)]
    of_tickets = [("tickets", version) for version in ("10", "9", "2", "odd")]
    assert found == [("words", "1"), *of_tickets, ("gpt", "1")]


def test_moves_of_two_models_in_one_moment_are_both_kept(tmp_path: Path, times: list[str]) -> None:
    for name in ("gpt", "tickets"):
        with decisions.by_hand(tmp_path, name=name, version="1", before=None, outcome="promoted by hand", reason=""):
            pass
    assert [one["name"] for one in decisions.read(tmp_path)] == ["tickets", "gpt"]


def test_an_interrupted_move_of_a_model_without_champion_is_forgotten(
    tmp_path: Path, times: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = decisions.by_hand(tmp_path, name="gpt", version="1", before=None, outcome="promoted by hand", reason="")
    moving.__enter__()
    assert len(decisions.interrupted(tmp_path)) == 1
    monkeypatch.setattr(decisions.lookup, "client_champion", lambda *_: None)
    decisions.settle(MagicMock(), tmp_path)
    assert decisions.interrupted(tmp_path) == []
    assert decisions.read(tmp_path) == []


def test_a_row_holds_what_the_decision_rests_on(tmp_path: Path, times: list[str]) -> None:
    decision = decide(
        TEST,
        rows_of("tickets", 0.95),
        rows_of("tickets", 0.3),
        champion_version="1",
        rule=Promotion(0.05, 365),
        resampling=Resampling(200, 0.95, 1),
    ).guarded([Guard(name, None, None, None, False, f"{name} is fine") for name in ("latency", "size")])
    compared = decision.comparison
    assert compared is not None
    keep(tmp_path, "1")
    keep(tmp_path, "2", decision, champion_version="1")
    row, first = decisions.rows(tmp_path)
    figures = ("challenger", "champion", "difference", "low", "high", "p_value")
    assert row == {
        "decided": times[0],
        "model": "tickets",
        "version": "2",
        "against": "1",
        "outcome": decision.word,
        "metric": "accuracy",
        **{figure: getattr(compared, figure) for figure in figures},
        "level": decision.level,
        "power": decision.power,
        "least_gain": decision.least_gain,
        "guards": "latency is fine; size is fine",
        "reason": decision.reason,
    }
    assert list(first) == list(row)
    assert {key for key, value in first.items() if value is None} == {
        *("against", "metric", "level", "power", "least_gain", "guards"),
        *figures,
    }


def test_a_run_shows_the_decisions_about_its_own_model(
    tmp_path: Path, times: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, "1")
    keep(tmp_path, "2", Decision(False, "worse"), champion_version="1")
    keep(tmp_path, "1", name="gpt")
    logged: list[Any] = []
    monkeypatch.setattr(decisions, "log_json", lambda _client, *what: logged.append(what))
    client = MagicMock()
    decisions.log_table(client, "a run", "tickets", tmp_path)
    decisions.log_table(client, "a run", "nobody", tmp_path)
    (run, table, file), (_, empty, _) = logged
    rows = [row for row in decisions.rows(tmp_path) if row["model"] == "tickets"]
    assert (run, file) == ("a run", "decisions.json")
    assert [dict(zip(table["columns"], values, strict=True)) for values in table["data"]] == rows
    assert [row["version"] for row in rows] == ["2", "1"]
    assert empty == {"columns": [], "data": []}
    tag = json.dumps([{"path": "decisions.json", "type": "table"}])
    assert client.set_tag.call_args.args == ("a run", "mlflow.loggedArtifacts", tag)
