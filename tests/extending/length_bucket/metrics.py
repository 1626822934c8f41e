"""Accuracy with its interval, and how two models are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, ratio


def row(record: dict[str, Any], label: str, predicted: str) -> Row:
    """One row of the test split."""
    return {"id": record["id"], "group": record["group"], "label": label, "predicted": predicted}


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, Any]:
    """The metrics of the split."""
    right = np.array([one["label"] == one["predicted"] for one in rows], dtype=np.float64)

    def score(weights: Weights) -> dict[str, float]:
        return {"accuracy": float(weights @ right / weights.sum())}

    metrics = score(np.ones(len(rows), dtype=np.int64))
    return {**with_intervals(metrics, score, resampling_units(rows, unit, "text"), how), "items": len(rows)}


TEST = PairedTest(
    same=("group", "label"),
    metrics={"accuracy": True},
    score=lambda _: (lambda sums: ratio(sums[0], sums[1]), lambda one: [one["label"] == one["predicted"], 1]),
    default=lambda *_: "accuracy",
)
