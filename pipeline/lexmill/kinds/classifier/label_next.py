"""Which texts are most worth labelling: those that a classifier is least sure of (Settles 2009)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lexmill.kinds.classifier import By


def uncertainty(probabilities: NDArray[np.float64], by: By) -> NDArray[np.float64]:
    """Return how unsure each prediction is, (N,), from 0 to 1.

    Args:
        probabilities: (N, L), L above 1.
        by: 1 - (the first - the second probability), 1 - the first, or the entropy over log L.
    """
    ranked = -np.sort(-probabilities, axis=1)
    if by == "margin":
        return np.asarray(1 - (ranked[:, 0] - ranked[:, 1]))
    if by == "least":
        return np.asarray(1 - ranked[:, 0])
    logs = np.log(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return np.asarray(-(probabilities * logs).sum(axis=1) / np.log(probabilities.shape[1]))


def most_unsure(scores: Sequence[Mapping[str, float]], by: By, count: int) -> list[tuple[int, float]]:
    """Return the indices of the `count` most unsure predictions, each with how unsure; ties in their order.

    Args:
        scores: of each prediction the probability of each label.
    """
    if not scores:
        return []
    found = uncertainty(np.array([list(one.values()) for one in scores]), by)
    return [(i, float(found[i])) for i in np.argsort(-found, kind="stable")[:count].tolist()]
