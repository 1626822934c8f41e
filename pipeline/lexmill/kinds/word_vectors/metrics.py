"""Accuracy on analogies and the rank of the right answer, from the rows of the questions, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import Columns, PairedTest, Score, by_key, ratio

UNIT, ROW = "pair asked for", "question"


def right(row: Row) -> float:
    """Return 1 for the right answer, else 0."""
    return float(row["rank"] == 1)


def reciprocal_rank(row: Row) -> float:
    """Return 1 / the rank of the right answer; 0 where a word of the question is unknown."""
    return 1 / row["rank"] if row["rank"] else 0.0


_SCORES = {"analogy_accuracy": right, "mean_reciprocal_rank": reciprocal_rank}


def summarise(rows: Sequence[Row], how: Resampling) -> dict[str, Any]:
    """Return the metrics with their intervals, the accuracy of each rule, and counts of questions, of unknown ones too.

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("there is no question to answer")
    values = {name: np.array([of(row) for row in rows]) for name, of in _SCORES.items()}

    def score(weights: Weights) -> dict[str, float]:
        return {name: float(weights @ one / weights.sum()) for name, one in values.items()}

    units = resampling_units(rows, UNIT, ROW)
    metrics = with_intervals(score(np.ones(len(rows), dtype=np.int64)), score, units, how)
    rules = {
        f"{name.removeprefix('rule ')}_accuracy": float(values["analogy_accuracy"][some].mean())
        for name, some in _rules(rows).items()
    }
    return {**metrics, **rules, "questions": len(rows), "unknown": sum(row["rank"] == 0 for row in rows)}


def _rules(rows: Sequence[Row]) -> dict[str, list[int]]:
    return by_key(rows, lambda row: f"rule {row['rule']}")


def worst(rows: Sequence[Row], count: int) -> list[Row]:
    """Return the rows whose right answer has the largest rank, the worst first; ties in their order."""
    return sorted(rows, key=lambda row: -row["rank"])[:count]


def _score(metric: str) -> tuple[Score, Columns]:
    return lambda sums: ratio(sums[0], sums[1]), lambda row: [_SCORES[metric](row), 1]


TEST = PairedTest(
    same=("group", "answer"),
    metrics=dict.fromkeys(_SCORES, True),
    score=_score,
    default=lambda *_: "analogy_accuracy",
    slices=_rules,
)
