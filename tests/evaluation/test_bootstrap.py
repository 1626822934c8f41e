"""Intervals by bootstrap."""

import math

import numpy as np
import pytest

from lexmill.evaluation.bootstrap import (
    MIN_GROUPS,
    Resampling,
    Units,
    Weights,
    intervals,
    resampling_units,
    with_intervals,
)

HOW = Resampling(samples=500, confidence=0.95, seed=3)


def mean_of(values: np.ndarray) -> object:
    def score(weights: Weights) -> dict[str, float]:
        return {"mean": float(weights @ values / weights.sum())}

    return score


def rows(groups: int, each: int = 2) -> list[dict[str, str]]:
    return [{"group": f"g{g}"} for g in range(groups) for _ in range(each)]


def test_groups_are_drawn_whole_where_there_are_enough() -> None:
    units = resampling_units(rows(MIN_GROUPS), "work", "block")
    assert (units.name, units.count) == ("work", MIN_GROUPS)
    drawn = np.zeros(MIN_GROUPS, dtype=np.int64)
    drawn[1] = 3
    assert units.weights(drawn)[:6].tolist() == [0, 0, 3, 3, 0, 0]


def test_rows_are_drawn_where_groups_are_too_few() -> None:
    units = resampling_units(rows(3), "work", "block")
    assert (units.name, units.count) == ("block", 6)


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    values = np.random.default_rng(0).normal(5, 2, 400)
    found = intervals(mean_of(values), resampling_units(rows(400, 1), "g", "r"), HOW)
    half = 1.96 * values.std() / math.sqrt(400)
    assert found["mean"] == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)


def test_dependent_rows_widen_the_interval() -> None:
    # Rows of a group are copies: 30 units, not 300.
    values = np.repeat(np.random.default_rng(0).normal(0, 1, 30), 10)
    by_group = intervals(mean_of(values), resampling_units(rows(30, 10), "g", "r"), HOW)["mean"]
    by_row = intervals(mean_of(values), Units(np.arange(300), 300, "r"), HOW)["mean"]
    assert by_group[1] - by_group[0] > 2 * (by_row[1] - by_row[0])


def test_the_same_seed_gives_the_same_interval() -> None:
    values = np.arange(50.0)
    units = resampling_units(rows(50, 1), "g", "r")
    assert intervals(mean_of(values), units, HOW) == intervals(mean_of(values), units, HOW)
    assert intervals(mean_of(values), units, HOW) != intervals(mean_of(values), units, Resampling(500, 0.95, 4))


def test_one_unit_has_no_interval() -> None:
    units = resampling_units(rows(1, 1), "g", "r")
    assert with_intervals({"mean": 1.0}, mean_of(np.ones(1)), units, HOW) == {"mean": 1.0, "interval_unit": "r"}


def test_samples_where_a_figure_is_not_defined_are_left_out() -> None:
    def score(weights: Weights) -> dict[str, float]:
        return {"x": math.nan if weights[0] else 1.0, "never": math.inf}

    assert intervals(score, Units(np.arange(3), 3, "r"), HOW) == {"x": (1.0, 1.0)}
