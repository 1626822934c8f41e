"""Accuracy, macro-F1, loss, confusion and the metrics of each class of a classifier, from its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.evaluation import confusions
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, by_key, ratio
from lexmill.kinds.classifier.calibration import calibration_error

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
    return mean_f1(np.diag(counts), counts.sum(axis=0), counts.sum(axis=1))


def mean_f1(hits: NDArray[Any], predicted: NDArray[Any], right: NDArray[Any]) -> float:
    """Return `macro_f1` from the items of each label: predicted rightly, predicted, and right, (labels,) each."""
    both = predicted + right
    return float(np.mean(np.divide(2.0 * hits, both, out=np.zeros(len(hits)), where=both > 0)))


def summarise(
    rows: Sequence[Row], unit: str, how: Resampling, threshold: float | None = None
) -> dict[str, float | str]:
    """Return accuracy, macro_f1 and loss (nats per item) with intervals, the calibration error, and the count of items.

    Args:
        threshold: the score below which the model abstains; adds the share of items that it answers, and the accuracy
            of its answers if there are any.

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
    confidence, right = confidences(rows)
    found["calibration_error"] = calibration_error(confidence, right)
    if threshold is not None:
        answered = confidence >= threshold
        found["answered"] = float(answered.mean())
        found |= {"answered_accuracy": float(right[answered].mean())} if answered.any() else {}
    return found


def confidences(rows: Sequence[Row]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the probability of each prediction, and whether it is right, (items,) each."""
    confidence = np.array([row["probabilities"][row["predicted"]] for row in rows], dtype=np.float64)
    return confidence, np.array([row["label"] == row["predicted"] for row in rows], dtype=np.bool_)


def confusion_counts(rows: Sequence[Row]) -> dict[str, int]:
    """Return the confusion matrix of items for a metrics file, zeros left out."""
    return confusions.confusion_counts((row["label"], row["predicted"]) for row in rows)


def per_class(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the metrics of each label: items, precision, recall, f1, and roc_auc against all other labels.

    An undefined metric is left out: precision if the label is never predicted, recall if no item has it, f1 if both,
    roc_auc if no item or every item has it, or if the model does not know it.
    """
    labels = all_labels(rows)
    counts = confusion(rows, labels)
    hits, items, predicted = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    right = np.array([row["label"] for row in rows], dtype=object)
    found: dict[str, dict[str, float]] = {}
    for i, label in enumerate(labels):
        chances = [row["probabilities"].get(label) for row in rows]
        metrics = {
            "precision": _share(hits[i], predicted[i]),
            "recall": _share(hits[i], items[i]),
            "f1": _share(2 * hits[i], items[i] + predicted[i]),
            "roc_auc": None if None in chances else roc_auc(right == label, np.array(chances, dtype=float)),
        }
        defined = {name: value for name, value in metrics.items() if value is not None}
        found[label] = {"items": int(items[i]), **defined}
    return found


def roc_auc(positive: NDArray[np.bool_], scores: NDArray[np.floating[Any]]) -> float | None:
    """Return the probability that a positive item scores higher than a negative one, ties counting half.

    The area under the ROC curve, from the sum of ranks (Mann and Whitney 1947). None if there is only one class.

    Args:
        positive: whether each item is of the class, (items,).
        scores: the class's probability for each item, (items,).
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    _, place, tied = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(tied) - (tied - 1) / 2)[place]  # from 1; equal scores share their mean rank
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _share(part: np.int64, whole: np.int64) -> float | None:
    return float(part / whole) if whole else None


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
