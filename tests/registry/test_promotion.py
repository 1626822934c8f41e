"""When the champion's alias may move."""

import json
from typing import Any

import numpy as np
import pytest

from lexmill import kinds
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.language_model.metrics import TEST as LANGUAGE_MODEL
from lexmill.params import Promotion
from lexmill.registry.guards import Guard
from lexmill.registry.promotion import Decision, decide
from lexmill.report.results import rounded

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
        kinds.find(KINDS[name]).module("metrics").TEST,
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
    assert "of version 7, p = 0.00249; if the new one truly gained" in better.reason
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
    assert _decide("gpt", changed[:30] + challenger[30:], champion).promote  # a half is enough


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


ITEMS = 16


def _exact_p(gaps: Any) -> float:
    """The p-value of the paired randomisation test over all 2 ** 16 swaps: each swap flips the sign of a unit's gap.

    The sums of the one half of the units stand sorted, so those that are as large as needed with a sum of the other
    half are counted by two look-ups.
    """
    signs = 1 - 2 * ((np.arange(256)[:, None] >> np.arange(8)) & 1)  # (256, 8)
    left, right = np.sort(signs @ gaps[:8]), signs @ gaps[8:]
    seen = abs(gaps.sum()) * (1 - 1e-9)
    as_large = len(left) - np.searchsorted(left, seen - right) + np.searchsorted(left, -seen - right, side="right")
    return float(as_large.sum() / 65_536)


def _years(years: int, seed: int) -> tuple[int, int]:
    """False promotions in so many years of nights by the level that is spent over a year, and by 0.05 a night.

    The champion of a year is one model, so the nights of a year are no independent tests.
    """
    generator, level = np.random.default_rng(seed), Promotion(0.05, 365).level
    yearly, nightly = 0, 0
    for _ in range(years):
        champion = generator.normal(60, 8, ITEMS)
        for challenger in generator.normal(60, 8, (365, ITEMS)):
            gaps = challenger - champion
            better, p = gaps.sum() < 0, _exact_p(gaps)
            yearly += better and p < level
            nightly += better and p < 0.05
    return yearly, nightly


def test_twenty_years_of_nights_without_gain_promote_at_most_once() -> None:
    """Half a false promotion is to be expected in 20 years (0.05 a year, of which half are for the worse)."""
    yearly, nightly = _years(20, seed=11)
    assert yearly <= 1
    assert nightly > 100  # 182 are to be expected at 0.05 a night; the nights of a year hang together, so it varies
    # Of 60 years: 1.5 are to be expected; more than 6 have a chance of 0.001 (Poisson).
    assert sum(_years(20, seed)[0] for seed in range(12, 15)) <= 6


def test_the_simulated_test_is_the_real_one() -> None:
    generator = np.random.default_rng(3)
    for shift in (0.0, 0.5, 1.0, 1.5, 2.0):
        champion = generator.normal(60, 1, ITEMS)
        challenger = champion - generator.normal(shift, 1, ITEMS)
        exact = _exact_p(challenger - champion)
        rule = Promotion(0.05, 365)
        how = Resampling(200, 0.95, 1)
        decision = decide(
            LANGUAGE_MODEL, _lm(challenger), _lm(champion), champion_version="1", rule=rule, resampling=how
        )
        assert decision.comparison is not None
        assert decision.comparison.p_value == pytest.approx(exact, rel=0.7, abs=2e-5)
        if not rule.level / 2 < exact < rule.level * 2:  # drawn swaps may err about a p that is as large as the level
            assert decision.promote == (decision.comparison.better and exact < rule.level)


def test_the_real_decision_promotes_nothing_in_a_year_without_gain() -> None:
    """The same through `decide` itself: 365 nights, of which 0.025 promotions are to be expected."""
    generator = np.random.default_rng(11)
    rule = Promotion(0.05, 365)
    promoted = 0
    for night in range(365):
        champion, challenger = generator.normal(60, 8, (2, 30))
        how = Resampling(100, 0.95, night)
        decision = decide(
            LANGUAGE_MODEL, _lm(challenger), _lm(champion), champion_version="1", rule=rule, resampling=how
        )
        promoted += decision.promote
    assert promoted == 0


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
    assert once.comparison is not None
    gain = 0.02 * once.comparison.champion  # a share of the metric, not of its unit
    assert once.power == once.comparison.power(gain, 0.05)
    assert f"if the new one truly gained {rounded(gain)}, " in once.reason
    assert nightly.least_gain is not None
    assert once.least_gain is not None
    assert nightly.least_gain > once.least_gain
    assert f"would notice with a chance of {nightly.power:.0%}" in nightly.reason
    assert f"{rounded(nightly.least_gain)} with 80%: a larger test split notices smaller gains" in nightly.reason
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
    # Worse than 1.78 by 0.0115 bits a byte: less than 1 % of it, more than 0.01; beyond chance once, not every night.
    noise = generator.normal(0, 0.5, 50)
    near = _lm(base + 0.4 + noise - noise.mean())
    once, nightly = (_decide("gpt", near, _lm(base), margin=0.01, fresher=True, tests_per_year=n) for n in (1, 365))
    assert once.comparison is not None
    assert once.comparison.loss == pytest.approx(0.01154, abs=1e-4)
    assert (once.promote, nightly.promote) == (True, False)


def test_the_hint_at_a_larger_test_split_is_for_tests_that_are_too_small() -> None:
    base = np.random.default_rng(7).normal(60, 8, 50)
    decision = _decide("gpt", _lm(base - 0.1), _lm(base))
    assert decision.power is not None
    assert decision.power > 0.8
    assert "larger test split" not in decision.reason


def test_a_shrunk_test_split_counts_what_the_champion_was_tested_on() -> None:
    champion, challenger = rows_of("tickets", 0.2), rows_of("tickets", 0.95)
    gone = [{**row, "id": f"gone-{row['id']}"} for row in champion]
    decision = _decide("tickets", challenger[:55], champion + gone)
    assert not decision.promote
    assert f"only 55 of {2 * len(champion)} items are those that version 7 was tested on" in decision.reason


def test_the_sentence_names_the_new_figure_first_and_the_record_has_the_level_of_one_test() -> None:
    decision = _decide("tickets", rows_of("tickets", 0.95), rows_of("tickets", 0.3), tests_per_year=365)
    found = decision.comparison
    assert found is not None
    assert found.challenger > found.champion
    assert f"accuracy {rounded(found.challenger)} against {rounded(found.champion)} of version 7" in decision.reason
    assert decision.level == Promotion(0.05, 365).level < 0.001


def test_what_is_not_finite_becomes_text_in_guards_too() -> None:
    guard = Guard("latency", 1.0, float("inf"), 1.5, True, "no answer")
    plain = Decision(True, "better", least_gain=float("nan")).guarded([guard]).plain()
    assert json.loads(json.dumps(plain, allow_nan=False))["guards"][0]["challenger"] == "inf"
    assert plain["least_gain"] == "nan"
