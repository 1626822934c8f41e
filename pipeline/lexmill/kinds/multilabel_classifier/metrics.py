"""F1 and exact match of a multi-label classifier, from its rows.

A row is a text: {"id", "group", "text_sha256", "labels", "predicted", "probabilities"}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_bytes
from lexmill.corpora.prepared import shown
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, by_key, ratio
from lexmill.kinds.multilabel_classifier.label_sets import as_matrix


def multilabel_row(
    record: Mapping[str, Any], labels: Sequence[str], chances: Mapping[str, float], given: Sequence[str]
) -> Row:
    """Return one row.

    Args:
        record: of the corpus.
        labels: its right labels.
        chances: the probability of each label that the model knows.
        given: the labels that the model gives.
    """
    return {
        "id": record["id"],
        "group": record["group"],
        "text_sha256": sha256_bytes(shown(dict(record)).encode("utf-8")),
        "labels": list(labels),
        "predicted": list(given),
        "probabilities": dict(chances),
    }


def all_labels(rows: Sequence[Row]) -> list[str]:
    """Return every label that is known, right or predicted, sorted."""
    return sorted({label for row in rows for label in (*row["labels"], *row["predicted"], *row["probabilities"])})


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, Any]:
    """Return micro_f1, macro_f1, exact_match and hamming_loss with intervals, and the count of items.

    As scikit-learn with `zero_division=0`: micro-F1 over all decisions, macro-F1 the mean over labels, exact match the
    share of texts whose labels are all right, the Hamming loss the share of wrong decisions.

    Raises:
        UserError: there are no rows, or no labels.
    """
    if not rows:
        raise UserError("the test split is empty; give `splits.test` of the corpus a larger share")
    labels = all_labels(rows)
    if not labels:
        raise UserError("no text of the test split has a label, and the model knows none")
    right, found = (as_matrix([row[key] for row in rows], labels) for key in ("labels", "predicted"))  # (N, L)
    hits, either, wrong = right & found, right.astype(int) + found, right != found
    exact = ~wrong.any(axis=1)

    def score(weights: Weights) -> dict[str, float]:
        of_label, sizes = weights @ hits, weights @ either  # (L,)
        f1 = np.divide(2 * of_label, sizes, out=np.zeros(len(labels)), where=sizes > 0)
        return {
            "micro_f1": float(2 * of_label.sum() / max(sizes.sum(), 1)),
            "macro_f1": float(f1.mean()),
            "exact_match": float(weights @ exact / weights.sum()),
            "hamming_loss": float((weights @ wrong).sum() / (weights.sum() * len(labels))),
        }

    whole = score(np.ones(len(rows), dtype=np.int64))
    return with_intervals(whole, score, resampling_units(rows, unit, "item"), how) | {"items": len(rows)}


def per_label(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the items of each label, and its precision, recall and F1 where they are defined."""
    labels = all_labels(rows)
    right, found = (as_matrix([row[key] for row in rows], labels) for key in ("labels", "predicted"))
    result: dict[str, dict[str, float]] = {}
    for i, label in enumerate(labels):
        hits, items, given = (right & found)[:, i].sum(), right[:, i].sum(), found[:, i].sum()
        shares = {"precision": (hits, given), "recall": (hits, items), "f1": (2 * hits, items + given)}
        result[label] = {"items": int(items)} | {name: float(a / b) for name, (a, b) in shares.items() if b}
    return result


def worst(rows: Sequence[Row], count: int) -> list[int]:
    """Return the indices of the rows with the most wrong decisions, the worst first; ties in corpus order."""
    return sorted(range(len(rows)), key=lambda i: (-len(set(rows[i]["labels"]) ^ set(rows[i]["predicted"])), i))[:count]


def _sums(row: Row) -> list[float]:
    right, found = set(row["labels"]), set(row["predicted"])
    return [2 * len(right & found), len(right) + len(found)]


TEST = PairedTest(
    same=("group", "text_sha256", "labels"),
    metrics={"micro_f1": True},
    score=lambda _: (lambda sums: ratio(sums[0], sums[1]), _sums),
    default=lambda *_: "micro_f1",
    slices=lambda rows: by_key(rows, lambda row: f"{len(row['labels'])} labels"),
)
