"""Preference accuracy of a reward model, from its rows.

A row is a pair: {"id", "group", "chosen", "rejected", "text_sha256"}, the two rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.preferences import preferred
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, ratio


def _right(row: Row) -> float:
    return preferred(row["chosen"], row["rejected"])


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, Any]:
    """Return preference_accuracy with its interval, and the number of pairs.

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("the test split is empty; give `splits.test` of the corpus a larger share")
    right = np.array([_right(row) for row in rows])

    def score(weights: Weights) -> dict[str, float]:
        return {"preference_accuracy": float(weights @ right / weights.sum())}

    units = resampling_units(rows, unit, "pair")
    return with_intervals(score(np.ones(len(rows), dtype=np.int64)), score, units, how) | {"pairs": len(rows)}


TEST = PairedTest(
    same=("group", "text_sha256"),
    metrics={"preference_accuracy": True},
    score=lambda _: (lambda sums: ratio(sums[0], sums[1]), lambda row: [_right(row), 1]),
    default=lambda *_: "preference_accuracy",
)
