"""F1 of entities, accuracy of words and sentences, the metrics of each tag and each type of entity, from the rows.

F1 is that of `conlleval` and of seqeval's default mode: an entity is right if its type and both its ends are, and all
entities of the test set count alike (micro average).

A row is {"id", "group", "tags", "predicted", "text_sha256"}; with entities also "hits", the numbers of entities that
are right, of the corpus, and predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_bytes
from lexmill.base.tag_schemes import entities
from lexmill.evaluation import confusions
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, by_thirds, ratio


def tagger_row(record: Mapping[str, Any], predicted: Sequence[str], *, marked: bool) -> Row:
    """Return one row.

    Args:
        record: {"id", "group", "words", "tags"}.
        predicted: a tag for each word, entities in iob2.
        marked: whether the tags mark entities.
    """
    text = "\n".join(record["words"])
    row: Row = {
        "id": record["id"],
        "group": record["group"],
        "tags": list(record["tags"]),
        "predicted": list(predicted),
        "text_sha256": sha256_bytes(text.encode("utf-8")),
    }
    if marked:
        right, found = set(entities(row["tags"])), set(entities(row["predicted"]))
        row["hits"] = [len(right & found), len(right), len(found)]
    return row


def right_words(row: Row) -> int:
    """Return how many of a row's tags are right."""
    return sum(a == b for a, b in zip(row["tags"], row["predicted"], strict=True))


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, float | str]:
    """Return all metrics with their intervals, and counts.

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("the test split is empty; give `splits.test` of the corpus a larger share")
    marked = all("hits" in row for row in rows)
    words = np.array([[right_words(row), len(row["tags"]), right_words(row) == len(row["tags"])] for row in rows])
    hits = np.array([row["hits"] if marked else [0, 0, 0] for row in rows])

    def score(weights: Weights) -> dict[str, float]:
        right, count, whole = weights @ words
        found = {"accuracy": float(right / count), "sentence_accuracy": float(whole / weights.sum())}
        if marked:
            both, truth, predicted = weights @ hits
            found["entity_f1"] = ratio(2 * both, truth + predicted) if truth + predicted else 0.0
            found["entity_precision"] = ratio(both, predicted) if predicted else 0.0
            found["entity_recall"] = ratio(both, truth) if truth else 0.0
        return found

    metrics = score(np.ones(len(rows), dtype=np.int64))
    summary = with_intervals(metrics, score, resampling_units(rows, unit, "sentence"), how)
    summary |= {"sentences": len(rows), "words": int(words[:, 1].sum())}
    if marked:
        summary["entities"] = int(hits[:, 1].sum())
    return summary


def per_class(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return items, precision, recall and f1 of each type of entity, or of each tag where there are no entities.

    An undefined metric is left out: precision of what is never predicted, recall of what never occurs.
    """
    both, truth, predicted = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        right, found = _items(row, row["tags"]), _items(row, row["predicted"])
        truth.update(item[0] for item in right)
        predicted.update(item[0] for item in found)
        both.update(item[0] for item in right & found)
    result: dict[str, dict[str, float]] = {}
    for name in sorted(truth | predicted):
        one: dict[str, float] = {"items": truth[name]}
        if predicted[name]:
            one["precision"] = both[name] / predicted[name]
        if truth[name]:
            one["recall"] = both[name] / truth[name]
        one["f1"] = 2 * both[name] / (truth[name] + predicted[name])
        result[name] = one
    return result


def _items(row: Row, tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return what is right or wrong in a row: its entities, or its words' tags."""
    return set(entities(tags)) if "hits" in row else {(tag, i, i + 1) for i, tag in enumerate(tags)}


def confusion_counts(rows: Sequence[Row]) -> dict[str, int]:
    """Return the confusion matrix of words, zeros left out."""
    return confusions.confusion_counts(pair for row in rows for pair in zip(row["tags"], row["predicted"], strict=True))


def worst(rows: Sequence[Row], count: int) -> list[int]:
    """Return the indices of the rows with the most wrong tags, the worst first; ties in corpus order."""
    return sorted(range(len(rows)), key=lambda i: (right_words(rows[i]) - len(rows[i]["tags"]), i))[:count]


def _score(metric: str) -> tuple[Callable[[NDArray[Any]], float], Callable[[Row], list[float]]]:
    if metric == "entity_f1":
        return lambda sums: 2 * sums[0] / (sums[1] + sums[2]) if sums[1] + sums[2] else 0.0, lambda row: row["hits"]
    return lambda sums: ratio(sums[0], sums[1]), lambda row: [right_words(row), len(row["tags"])]


TEST = PairedTest(
    same=("group", "tags", "text_sha256"),
    metrics={"entity_f1": True, "accuracy": True},
    score=_score,
    default=lambda one, other: "entity_f1" if all("hits" in row for row in [*one, *other]) else "accuracy",
    slices=lambda rows: by_thirds(rows, lambda row: len(row["tags"])),
)
