"""Accuracy, macro-F1, loss and confusion of a classifier, from its rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, by_key, ratio

_AS = re.compile("(?<![^ ])as(?![^ ])")
_SMALLEST = 1e-12  # a probability of 0 for the right label would be an infinite loss


def classifier_row(record: dict[str, Any], labels: Sequence[str], probabilities: NDArray[np.floating[Any]]) -> Row:
    """Return one row; the prediction is the most probable label (ties: the first).

    Args:
        record: {"id", "group", "label"}.
        labels: the model's labels, in the order of `probabilities`, (labels,).
    """
    return {
        "id": record["id"],
        "group": record["group"],
        "label": record["label"],
        "predicted": labels[int(np.argmax(probabilities))],
        "probabilities": {label: float(p) for label, p in zip(labels, probabilities, strict=True)},
    }


def row_loss(row: Row) -> float:
    """Return the nats of the right label; a label unknown to the model has the smallest probability."""
    return -math.log(max(row["probabilities"].get(row["label"], 0.0), _SMALLEST))


def all_labels(rows: Sequence[Row]) -> list[str]:
    """Return every label that is known, right or predicted, sorted."""
    return sorted({label for row in rows for label in (row["label"], row["predicted"], *row["probabilities"])})


def confusion(rows: Sequence[Row], labels: Sequence[str]) -> NDArray[np.int64]:
    """Return counts (labels, labels): the right label down, the predicted one across."""
    index = {label: i for i, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    for row in rows:
        counts[index[row["label"]], index[row["predicted"]]] += 1
    return counts


def macro_f1(counts: NDArray[Any]) -> float:
    """Return the mean over labels of F1 from a confusion matrix; a label neither right nor predicted has F1 0.

    As scikit-learn's `f1_score(average="macro", zero_division=0)` with all labels given.
    """
    hits = np.diag(counts).astype(float)
    denominators = counts.sum(axis=0) + counts.sum(axis=1)
    return float(np.mean(np.divide(2 * hits, denominators, out=np.zeros(len(hits)), where=denominators > 0)))


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, float | str]:
    """Return accuracy, macro_f1 and loss (nats per item) with intervals, and the count of items.

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("the test split is empty; give `splits.test` of the corpus a larger share")
    labels = all_labels(rows)
    index = {label: i for i, label in enumerate(labels)}
    cell = np.array([index[row["label"]] * len(labels) + index[row["predicted"]] for row in rows])
    losses = np.array([row_loss(row) for row in rows])

    def score(weights: Weights) -> dict[str, float]:
        counts = np.bincount(cell, weights=weights, minlength=len(labels) ** 2).reshape(len(labels), len(labels))
        items = weights.sum()
        return {
            "accuracy": float(np.trace(counts) / items),
            "macro_f1": macro_f1(counts),
            "loss": float(weights @ losses / items),
        }

    metrics = score(np.ones(len(rows), dtype=np.int64))
    found = with_intervals(metrics, score, resampling_units(rows, unit, "item"), how)
    found["items"] = len(rows)
    return found


def confusion_counts(rows: Sequence[Row]) -> dict[str, int]:
    """Return the confusion matrix for a metrics file: `"<right> as <predicted>"` -> items, zeros left out.

    A backslash within a label is doubled and its word `as` is written `\\as`, so that each key is of one pair.
    """
    labels = all_labels(rows)
    counts = confusion(rows, labels)
    names = [_AS.sub(r"\\as", label.replace("\\", "\\\\")) for label in labels]
    return {
        f"{right} as {predicted}": int(counts[i, j])
        for i, right in enumerate(names)
        for j, predicted in enumerate(names)
        if counts[i, j]
    }


def worst(rows: Sequence[Row], count: int) -> list[int]:
    """Return the indices of the rows with the largest loss, the worst first; ties in corpus order."""
    return sorted(range(len(rows)), key=lambda i: (-row_loss(rows[i]), i))[:count]


TEST = PairedTest(
    same=("group", "label"),
    metrics={"accuracy": True},
    score=lambda _: (lambda sums: ratio(sums[0], sums[1]), lambda row: [row["label"] == row["predicted"], 1]),
    default=lambda *_: "accuracy",
    slices=lambda rows: by_key(rows, lambda row: f"label {row['label']}"),
)
