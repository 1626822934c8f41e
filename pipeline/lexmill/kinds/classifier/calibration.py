"""How far a classifier's probabilities can be trusted: temperature, expected calibration error, abstention.

Shape letters: N texts, L labels.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

BINS = 15
_LEAST, _MOST = 1e-3, 20.0  # of the largest logit over T: texts that are all right have no lowest loss
Floats = NDArray[np.float64]


def fit_temperature(logits: Floats, labels: NDArray[np.int64]) -> float:
    """Return the T for which softmax(logits / T) has the least cross-entropy (Guo et al. 2017).

    The most probable label stays what it was. The loss is convex in 1/T, so the minimum over log T is the only one.
    T is 1 where all logits are 0.

    Args:
        logits: of held-out texts, (N, L).
        labels: of the right ones, (N,).
    """

    largest = float(np.abs(logits).max())
    if not largest:
        return 1.0

    def nats(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        return float(np.mean(logsumexp(scaled, axis=1) - scaled[np.arange(len(labels)), labels]))

    found = minimize_scalar(
        nats, bounds=(math.log(largest / _MOST), math.log(largest / _LEAST)), method="bounded", options={"xatol": 1e-6}
    )
    return math.exp(float(found.x))


def bins(confidence: Floats, right: NDArray[np.bool_]) -> list[tuple[int, float, float]]:
    """Return the number of texts, mean confidence and accuracy of each bin of equal width that has texts.

    Args:
        confidence: the probability of each prediction, (N,).
        right: whether it is right, (N,).
    """
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return [
        (int(inside.sum()), float(confidence[inside].mean()), float(right[inside].mean()))
        for inside in (place == number for number in range(BINS))
        if inside.any()
    ]


def calibration_error(confidence: Floats, right: NDArray[np.bool_]) -> float:
    """Return the expected calibration error: the mean over texts of |accuracy - confidence| of their bin."""
    return sum(count * abs(accuracy - mean) for count, mean, accuracy in bins(confidence, right)) / len(right)


def abstention_threshold(confidence: Floats, right: NDArray[np.bool_], accuracy: float) -> float | None:
    """Return the smallest confidence at which the texts that have it or more are right that often.

    None: not even the most confident ones are.

    Args:
        confidence, right: of held-out texts, (N,) each.
        accuracy: the share that must be right.
    """
    order = np.argsort(-confidence, kind="stable")
    ranked = confidence[order]
    share = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    last_of_ties = np.append(ranked[:-1] != ranked[1:], True)  # a threshold cannot part equal confidences
    enough = np.flatnonzero((share >= accuracy) & last_of_ties)
    return float(ranked[enough[-1]]) if len(enough) else None
