"""Minimum Bayes risk: of many translations, those that agree most with all of them (Eikema and Aziz 2020).

The expected chrF of a candidate is its mean chrF with each candidate as the reference, itself among them; a text that
was drawn twice counts twice. Cost: for N candidates of L characters, O(N * N * L) comparisons of counts.

Shape letters: N different texts, G different n-grams of one order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ORDER, _BETA = 6, 2  # sacrebleu's chrF


def expected_chrf(texts: Sequence[str]) -> dict[str, float]:
    """Return each different text, best first, with its mean chrF (0 to 100) against all; of equals the earlier one."""
    weights = Counter(texts)
    unique = list(weights)
    means = chrf_matrix(unique) @ np.array([weights[text] for text in unique]) / len(texts)
    return {unique[i]: float(means[i]) for i in np.argsort(-means, kind="stable")}


def chrf_matrix(texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the sentence chrF of each text (rows) with each as its reference (columns), (N, N)."""
    size = len(texts)
    precision, recall, orders = (np.zeros((size, size)) for _ in range(3))
    for order in range(1, _ORDER + 1):
        counts = _counts(["".join(text.split()) for text in texts], order)  # (N, G)
        matches = np.stack([np.minimum(row, counts).sum(axis=1) for row in counts])  # (N, N)
        totals = counts.sum(axis=1)
        both = (totals[:, None] > 0) & (totals > 0)
        some = np.maximum(totals, 1)
        precision += np.where(both, matches / some[:, None], 0.0)
        recall += np.where(both, matches / some, 0.0)
        orders += both
    precision, recall = (np.divide(value, np.maximum(orders, 1)) for value in (precision, recall))
    below = _BETA**2 * precision + recall
    return np.divide(100 * (1 + _BETA**2) * precision * recall, below, out=np.zeros_like(below), where=below > 0)


def _counts(texts: Sequence[str], order: int) -> NDArray[np.int64]:
    """How often each text (N, G) has each n-gram of one order."""
    index: dict[str, int] = {}
    found = [Counter(text[i : i + order] for i in range(len(text) - order + 1)) for text in texts]
    for row in found:
        for gram in row:
            index.setdefault(gram, len(index))
    counts = np.zeros((len(texts), len(index)), dtype=np.int64)
    for i, row in enumerate(found):
        counts[i, [index[gram] for gram in row]] = list(row.values())
    return counts
