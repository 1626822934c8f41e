"""Labels of texts as sets, as rows of a matrix, and where a label's probability is enough.

Letters: N texts, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Given = NDArray[np.bool_]
Floats = NDArray[np.float64]


def as_matrix(sets: Sequence[Sequence[str]], labels: Sequence[str]) -> Given:
    """Return which labels each text has, (N, L); labels that are not among `labels` are left out."""
    number = {label: i for i, label in enumerate(labels)}
    found = np.zeros((len(sets), len(labels)), dtype=np.bool_)
    for row, some in enumerate(sets):
        found[row, [number[label] for label in some if label in number]] = True
    return found


def best_thresholds(chances: Floats, right: Given) -> Floats:
    """Return for each label the probability from which on giving it has the highest F1, (L,).

    Of several the one nearest to 0.5; 0.5 for a label that no text has.

    Args:
        chances: of each label, (N, L).
        right: which labels each text has, (N, L).
    """
    return np.array([_best(chances[:, i], right[:, i]) for i in range(chances.shape[1])])


def _best(chances: Floats, right: Given) -> float:
    if not right.any():
        return 0.5
    order = np.argsort(-chances, kind="stable")
    ranked, hits = chances[order], np.cumsum(right[order])
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + right.sum())
    last_of_ties = np.append(ranked[:-1] != ranked[1:], True)
    below = np.append(ranked[1:], 0.0)  # halfway to the next lower one, so that no text lies on the threshold
    halfway = np.where(last_of_ties, (ranked + below) / 2, np.nan)
    best = f1[last_of_ties].max()
    choices = halfway[last_of_ties & np.isclose(f1, best)]
    return float(choices[np.argmin(np.abs(choices - 0.5))])
