"""A confusion matrix from the counts of an evaluation, `"<right> as <predicted>"` -> items, and each class's metrics.

Within a label, the evaluation doubles a backslash and writes the word `as` as `\\as`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lexmill.report import read

_BETWEEN = " as "
_ESCAPED = re.compile(r"\\(\\|as)")
MOST_LABELS = 12  # a larger matrix is unreadable; the page lists its largest confusions


@dataclass(frozen=True)
class Cell:
    count: int
    share: float  # of its right label
    right: bool


@dataclass(frozen=True)
class Confusion:
    """`rows`: (right label, its cells in the order of `labels`, its recall); `largest`: (right, predicted, items)."""

    labels: list[str]
    rows: list[tuple[str, list[Cell], float | None]]
    precisions: list[float | None]
    largest: list[tuple[str, str, int]]

    @property
    def readable(self) -> bool:
        """Return whether the matrix is small enough to read."""
        return len(self.labels) <= MOST_LABELS


def confusion(counts: Any) -> Confusion | None:
    """Return the matrix; None if there are no counts."""
    if not isinstance(counts, Mapping) or not counts:
        return None
    pairs = _pairs(counts)
    labels = sorted({label for pair in pairs for label in pair})
    totals = {right: sum(pairs.get((right, other), 0) for other in labels) for right in labels}
    predicted = {label: sum(pairs.get((other, label), 0) for other in labels) for label in labels}
    rows: list[tuple[str, list[Cell], float | None]] = []
    for right in labels:
        cells = [
            Cell(pairs.get((right, other), 0), pairs.get((right, other), 0) / max(totals[right], 1), right == other)
            for other in labels
        ]
        rows.append((right, cells, _share(pairs.get((right, right), 0), totals[right])))
    wrong = [(right, other, count) for (right, other), count in pairs.items() if right != other]
    return Confusion(
        labels,
        rows,
        [_share(pairs.get((label, label), 0), predicted[label]) for label in labels],
        sorted(wrong, key=lambda entry: (-entry[2], entry[0], entry[1]))[:MOST_LABELS],
    )


@dataclass(frozen=True)
class ClassMetrics:
    """The metrics of one label; None: undefined."""

    label: str
    items: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    roc_auc: float | None  # against all other labels


def per_class(measured: Any) -> list[ClassMetrics]:
    """Return the metrics of each label, sorted by label."""
    names = [field.name for field in fields(ClassMetrics)][1:]
    return [
        ClassMetrics(label, **{name: read.number(read.mapping(metrics).get(name)) for name in names})
        for label, metrics in sorted(read.mapping(measured).items())
    ]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _pairs(counts: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return (right, predicted) -> items; a key without " as " is no pair."""
    found: dict[tuple[str, str], int] = {}
    for key, count in counts.items():
        right, between, predicted = key.partition(_BETWEEN)
        if between:
            found[_label(right), _label(predicted)] = int(count)
    return found


def _label(written: str) -> str:
    return _ESCAPED.sub(lambda found: found[1], written)
