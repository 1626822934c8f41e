"""When the champion's alias may move."""

import json
from typing import Any

import numpy as np
import pytest

from lexmill.evaluation.bootstrap import Resampling
from lexmill.params import Promotion
from lexmill.registry.promotion import Decision, decide

from .conftest import KINDS, rows_of

Row = dict[str, Any]


def _decide(
    name: str,
    challenger: list[Row],
    champion: list[Row],
    significance: float = 0.05,
    tests_per_year: int = 1,
    **more: Any,
) -> Decision:
    rule = Promotion(significance, tests_per_year, more.pop("margin", 0.0))
    return decide(
        KINDS[name],
        challenger,
        champion,
        champion_version="7",
        rule=rule,
        resampling=Resampling(200, 0.95, 1),
        **more,
    )


@pytest.mark.parametrize("name", KINDS)
def test_a_clearly_better_one_is_promoted_and_a_worse_one_is_not(name: str) -> None:
    good, bad = rows_of(name, 0.95), rows_of(name, 0.3)
    better, worse = _decide(name, good, bad), _decide(name, bad, good)
    assert better.promote
    assert better.reason.startswith("better: ")
    assert "of version 7, p = 0.00249; a gain of" in better.reason
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


def _lm(nats: Any) -> list[Row]:
    rows = rows_of("gpt", 0.5)[: len(nats)]
    return [{**row, "group": row["id"], "nats": float(value)} for row, value in zip(rows, nats, strict=True)]


@pytest.mark.parametrize("years", [3, pytest.param(20, marks=pytest.mark.torture)])
def test_years_of_nights_without_gain_promote_at_most_once(years: int) -> None:
    """Every night a model of equal quality; at a level of 0.05 a night they would promote nine times a year."""
    generator = np.random.default_rng(11)
    yearly, nightly = 0, 0
    for night in range(years * 365):
        champion, challenger = generator.normal(60, 8, (2, 30))
        resampling = Resampling(100, 0.95, night)
        rule = Promotion(0.05, 365)
        decision = decide(
            "language_model", _lm(challenger), _lm(champion), champion_version="1", rule=rule, resampling=resampling
        )
        yearly += decision.promote
        assert decision.comparison is not None
        nightly += decision.comparison.better and decision.comparison.p_value < 0.05
    assert yearly <= 1
    assert years * 5 < nightly < years * 14


def test_a_year_of_tests_asks_more_of_each_and_says_what_it_can_find() -> None:
    generator = np.random.default_rng(5)
    base = generator.normal(60, 8, 50)
    challenger, champion = _lm(base - 1 + generator.normal(0, 2.8, 50)), _lm(base)
    once = _decide("gpt", challenger, champion)
    nightly = _decide("gpt", challenger, champion, tests_per_year=365)
    assert once.promote
    assert not nightly.promote
    assert "p must be below 0.00014" in nightly.reason
    assert once.power is not None
    assert nightly.power is not None
    assert 0 < nightly.power < once.power <= 1
    assert nightly.least_gain is not None
    assert once.least_gain is not None
    assert nightly.least_gain > once.least_gain
    assert f"is found with a chance of {nightly.power:.0%}" in nightly.reason
    assert json.loads(json.dumps(nightly.plain()))["power"] == nightly.power


def test_an_equal_model_of_fresher_data_replaces_the_champion_where_that_is_allowed() -> None:
    generator = np.random.default_rng(6)
    base = generator.normal(60, 8, 50)
    equal, worse, champion = (_lm(base + generator.normal(shift, 0.5, 50)) for shift in (0.0, 2.0, 0.0))
    assert not _decide("gpt", equal, champion, fresher=True).promote  # the default
    assert not _decide("gpt", equal, champion, margin=0.01).promote  # the same data
    decision = _decide("gpt", equal, champion, margin=0.01, fresher=True, tests_per_year=365)
    assert decision.promote
    assert "its data are fresher and it is worse by less than 1.0%" in decision.reason
    assert not _decide("gpt", worse, champion, margin=0.01, fresher=True).promote
