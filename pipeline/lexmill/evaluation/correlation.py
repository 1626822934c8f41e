"""Pearson's correlation of weighted items; of ranks it is Spearman's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lexmill.evaluation.bootstrap import Weights

Floats = NDArray[np.float64]


def correlation(a: Floats, b: Floats, weights: Weights) -> float:
    """Return Pearson's correlation, each item counted `weights` times; NaN where a side does not vary."""
    share = weights / weights.sum()
    a, b = a - share @ a, b - share @ b
    spread = np.sqrt((share @ a**2) * (share @ b**2))
    return float(share @ (a * b) / spread) if spread > 0 else float("nan")
