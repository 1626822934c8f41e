"""A confusion matrix from the counts that evaluation left: `"<right> as <predicted>"` -> items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_BETWEEN = " as "
MOST_LABELS = 12  # a larger matrix is no longer read; its largest confusions are


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
        """Whether the matrix is small enough to be read as one."""
        return len(self.labels) <= MOST_LABELS


def confusion(counts: Any) -> Confusion | None:
    """The matrix; None where there are no counts."""
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


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _pairs(counts: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """(right, predicted) -> items. A label may itself hold " as ": then the split whose sides are labels is right."""
    splits = {key: _splits(key) for key in counts}
    known = {side for found in splits.values() if len(found) == 1 for side in found[0]}
    known |= {left for found in splits.values() for left, right in found if left == right}
    pairs: dict[tuple[str, str], int] = {}
    for key, found in splits.items():
        if found:
            best = max(found, key=lambda pair: (pair[0] in known) + (pair[1] in known))
            pairs[best] = pairs.get(best, 0) + int(counts[key])
    return pairs


def _splits(key: str) -> list[tuple[str, str]]:
    return [(key[:place], key[place + len(_BETWEEN) :]) for place in _places(key)]


def _places(key: str) -> Iterable[int]:
    place = key.find(_BETWEEN)
    while place >= 0:
        yield place
        place = key.find(_BETWEEN, place + 1)
