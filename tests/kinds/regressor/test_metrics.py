"""Errors and correlations beside scipy and scikit-learn; levels and their expected number by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score, mean_absolute_error

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.regressor.metrics import TEST, correlation, regressor_row, summarise, worst
from lexmill.kinds.regressor.scale import expected, nearest

HOW = Resampling(50, 0.95, 0)


def rows(right: Any, found: Any) -> list[dict[str, Any]]:
    return [
        regressor_row({"id": f"{i}", "group": f"{i}", "text": f"text {i}"}, float(a), float(b))
        for i, (a, b) in enumerate(zip(right, found, strict=True))
    ]


def test_metrics_are_those_of_scipy_and_scikit_learn() -> None:
    random = np.random.default_rng(0)
    right = random.integers(1, 6, 200).astype(float)
    found = right + random.normal(size=200)
    measured = summarise(rows(right, found), "item", HOW, [1.0, 2.0, 3.0, 4.0, 5.0])
    assert measured["mean_absolute_error"] == pytest.approx(mean_absolute_error(right, found))
    assert measured["root_mean_squared_error"] == pytest.approx(np.sqrt(np.mean((right - found) ** 2)))
    assert measured["pearson"] == pytest.approx(stats.pearsonr(right, found).statistic)
    assert measured["spearman"] == pytest.approx(stats.spearmanr(right, found).statistic)
    level = np.clip(np.round(found), 1, 5)
    assert measured["level_accuracy"] == pytest.approx(np.mean(level == right))
    assert measured["quadratic_kappa"] == pytest.approx(cohen_kappa_score(right, level, weights="quadratic"))
    assert measured["pearson_low"] < measured["pearson"] < measured["pearson_high"]
    assert measured["items"] == 200


def test_a_weight_counts_an_item_as_often() -> None:
    a, b = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0])
    twice = correlation(np.append(a, 2.0), np.append(b, 3.0), np.ones(4, dtype=np.int64))
    assert correlation(a, b, np.array([1, 2, 1])) == pytest.approx(twice)


def test_an_undefined_correlation_is_left_out() -> None:
    measured = summarise(rows([1, 2, 3], [2, 2, 2]), "item", HOW)
    assert "pearson" not in measured
    assert "level_accuracy" not in measured
    assert measured["mean_absolute_error"] == pytest.approx(2 / 3)
    with pytest.raises(UserError, match="the test split is empty"):
        summarise([], "item", HOW)


def test_the_expected_number_by_hand() -> None:
    levels = [0.0, 1.0, 4.0]
    chances = np.array([[1.0, 1.0], [0.5, 0.0], [1.0, 0.5]])  # above 0, above 1
    assert expected(chances, levels).tolist() == [4.0, 0.5, 2.5]
    assert nearest(np.array([4.0, 0.5, 2.6, -7.0]), levels).tolist() == [2, 0, 2, 0]


def test_models_are_compared_by_their_absolute_error() -> None:
    score, columns = TEST.score("mean_absolute_error")
    sums = np.sum([columns(row) for row in rows([1, 2], [1.5, 4])], axis=0)
    assert score(sums) == pytest.approx(1.25)
    assert worst(rows([1, 2, 3], [1, 5, 2]), 2) == [1, 2]
