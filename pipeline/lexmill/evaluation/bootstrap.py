"""Bootstrap intervals (Efron 1979) over the corpus's unit.

Sentences of one work or one component are not independent, so whole groups are drawn. Fewer than `MIN_GROUPS` groups
say too little about the variance between groups; then single rows are drawn, and the metric says so. A score is a
function of the rows' weights (how often each was drawn). Cost: samples x (one score). Memory O(rows).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lexmill.evaluation.rows import Row
from lexmill.params import Evaluation

MIN_GROUPS = 20

Weights = NDArray[np.int64]  # (rows,), how often each row counts
Score = Callable[[Weights], dict[str, float]]


@dataclass(frozen=True)
class Resampling:
    """The number of samples, the confidence level and the seed."""

    samples: int
    confidence: float
    seed: int

    @classmethod
    def of(cls, evaluation: Evaluation, seed: int) -> Resampling:
        """The settings of params.yaml."""
        return cls(evaluation.bootstrap_samples, evaluation.confidence, seed)


@dataclass(frozen=True)
class Units:
    """The units to draw: the unit of each row, and the unit's name."""

    of_row: NDArray[np.int64]  # (rows,)
    count: int
    name: str

    def weights(self, drawn: NDArray[np.int64]) -> Weights:
        """Row weights from the number of draws of each unit, (units,) -> (rows,)."""
        return drawn[self.of_row]


def resampling_units(rows: Sequence[Row], group_name: str, row_name: str) -> Units:
    """Groups if there are at least `MIN_GROUPS` of them, else rows.

    Args:
        rows: the rows; `group` is read.
        group_name, row_name: the corpus's name of a group (work, component, review), and of a row.
    """
    groups: dict[str, int] = {}
    of_row = np.array([groups.setdefault(row["group"], len(groups)) for row in rows], dtype=np.int64)
    if len(groups) >= MIN_GROUPS:
        return Units(of_row, len(groups), group_name)
    return Units(np.arange(len(rows), dtype=np.int64), len(rows), row_name)


def intervals(score: Score, units: Units, how: Resampling) -> dict[str, tuple[float, float]]:
    """Percentile intervals of each metric that `score` returns.

    Returns:
        metric -> (low, high), without metrics that were never finite; empty with fewer than two units.
    """
    if units.count < 2:
        return {}
    generator = np.random.default_rng(how.seed)
    drawn: dict[str, list[float]] = {}
    for _ in range(how.samples):
        picks = generator.integers(0, units.count, units.count)
        weights = units.weights(np.bincount(picks, minlength=units.count))
        for name, value in score(weights).items():
            drawn.setdefault(name, []).append(value)
    tail = (1 - how.confidence) / 2
    found = {}
    for name, values in drawn.items():
        finite = np.array(values)[np.isfinite(values)]
        if len(finite):
            low, high = np.quantile(finite, [tail, 1 - tail])
            found[name] = (float(low), float(high))
    return found


def with_intervals(metrics: dict[str, float], score: Score, units: Units, how: Resampling) -> dict[str, float | str]:
    """The metrics with `<metric>_low`, `<metric>_high`, and `interval_unit`, the name of the drawn unit."""
    found: dict[str, float | str] = dict(metrics)
    for name, (low, high) in intervals(score, units, how).items():
        if name in metrics:
            found[f"{name}_low"], found[f"{name}_high"] = low, high
    found["interval_unit"] = units.name
    return found
