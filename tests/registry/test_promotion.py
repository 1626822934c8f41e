"""When the champion's alias may move."""

import json
from typing import Any

import pytest

from lexmill.evaluation.bootstrap import Resampling
from lexmill.registry.promotion import Decision, decide

from .conftest import KINDS, rows_of

Row = dict[str, Any]


def _decide(name: str, challenger: list[Row], champion: list[Row], significance: float = 0.05) -> Decision:
    return decide(
        KINDS[name],
        challenger,
        champion,
        champion_version="7",
        significance=significance,
        resampling=Resampling(200, 0.95, 1),
    )


@pytest.mark.parametrize("name", KINDS)
def test_a_clearly_better_one_is_promoted_and_a_worse_one_is_not(name: str) -> None:
    good, bad = rows_of(name, 0.95), rows_of(name, 0.3)
    better, worse = _decide(name, good, bad), _decide(name, bad, good)
    assert better.promote
    assert better.reason.startswith("better: ")
    assert "of version 7, p = 0.00498" in better.reason
    assert not worse.promote
    assert worse.reason.startswith("worse: ")


@pytest.mark.parametrize("name", KINDS)
def test_a_tie_stays(name: str) -> None:
    rows = rows_of(name, 0.5)
    decision = _decide(name, rows, list(reversed(rows)))
    assert not decision.promote
    assert decision.reason.startswith("no better: ")
    assert "p = 1" in decision.reason


def test_better_by_chance_stays() -> None:
    champion = rows_of("tickets", 0.5)
    challenger = [dict(row) for row in champion]
    for row in [row for row in challenger if row["predicted"] != row["label"]][:2]:
        row["predicted"] = row["label"]
    decision = _decide("tickets", challenger, champion)
    assert not decision.promote
    assert "chance explains it (p must be below 0.05)" in decision.reason
    assert _decide("tickets", challenger, champion, significance=0.9).promote


def test_a_grown_test_split_is_compared_on_the_items_both_saw() -> None:
    champion, challenger = rows_of("tickets", 0.2), rows_of("tickets", 0.95)
    new = [{**row, "id": f"new-{row['id']}"} for row in challenger[:40]]
    decision = _decide("tickets", challenger + new, champion)
    assert decision.promote
    assert "on the 60 of 100 test items that both saw" in decision.reason


def test_too_few_shared_items_decide_nothing() -> None:
    champion, challenger = rows_of("gpt", 0.2), rows_of("gpt", 0.95)
    changed = [{**row, "text_sha256": "another text"} for row in challenger[:31]]
    decision = _decide("gpt", changed + challenger[31:], champion)
    assert not decision.promote
    assert "the test data changed: only 29 of 60 items" in decision.reason
    assert not _decide("gpt", challenger, []).promote


def test_losses_of_other_tokens_with_unknown_ones_are_not_compared() -> None:
    champion, challenger = rows_of("gpt", 0.2), rows_of("gpt", 0.95)
    for row in challenger:
        row |= {"unknown": 1, "targets": 7}
    decision = _decide("gpt", challenger, champion)
    assert not decision.promote
    assert "it cannot be compared with version 7" in decision.reason


def test_a_broken_models_losses_do_not_promote_it_and_can_be_written() -> None:
    champion, challenger = rows_of("gpt", 0.2), rows_of("gpt", 0.95)
    challenger[3]["nats"] = float("nan")
    decision = _decide("gpt", challenger, champion)
    assert not decision.promote
    assert json.dumps(decision.plain(), allow_nan=False)
