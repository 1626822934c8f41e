"""Is the challenger better than the champion, beyond chance, on the same test items?

The p-value is two-sided, by paired approximate randomisation (Riezler and Maxwell 2005): under the null hypothesis the
two models' results for a unit are exchangeable, so units are swapped at random to count how often the difference is at
least as large as the observed one; p = (count + 1) / (samples + 1). For a small level, sampling continues until enough
differences were as large, or p is surely below the level (Besag and Clifford 1991). The interval of the difference is a
paired bootstrap (Koehn 2004). Units are groups, or rows with too few groups (`bootstrap.MIN_GROUPS`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling, resampling_units
from lexmill.evaluation.rows import Row, read_rows

_LARGE = 20  # differences as large as the observed one, after which p is known to about a fifth of itself
_BLOCK = 100  # swaps drawn at once

Score = Callable[[NDArray[Any]], float]
Columns = Callable[[Row], list[float]]


@dataclass(frozen=True)
class PairedTest:
    """How two models of a kind are compared, item by item; each kind has one in its `metrics`.

    Attributes:
        same: keys that must be equal in two rows of the same test item.
        metrics: the known metrics -> whether higher is better.
        score: a metric as a function of sums, and the columns of a row that are summed.
        default: the metric for the rows of two models; raises UserError where they cannot be compared.
        slices: named parts of the test split, as indices of its rows; fewer than two: none.
    """

    same: tuple[str, ...]
    metrics: Mapping[str, bool]
    score: Callable[[str], tuple[Score, Columns]]
    default: Callable[[Sequence[Row], Sequence[Row]], str]
    slices: Callable[[Sequence[Row]], dict[str, list[int]]] = lambda _: {}


def by_key(rows: Sequence[Row], name: Callable[[Row], str]) -> dict[str, list[int]]:
    """Slices by the name of each row."""
    found: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault(name(row), []).append(i)
    return found


def by_thirds(rows: Sequence[Row], length: Callable[[Row], int]) -> dict[str, list[int]]:
    """Slices by length: short, middle and long items."""
    order = sorted(range(len(rows)), key=lambda i: length(rows[i]))
    parts = np.array_split(np.array(order, dtype=int), 3)
    names = ("short items", "middle items", "long items")
    return {name: sorted(int(i) for i in part) for name, part in zip(names, parts, strict=True) if len(part)}


@dataclass(frozen=True)
class Comparison:
    """A challenger compared with a champion on one metric.

    `difference` is challenger - champion with its interval `low` to `high`, and `standard_error` its standard deviation
    over the bootstrap. `better` and `worse` are its sign for this metric, whether significant (`p_value`) or not.
    """

    metric: str
    challenger: float
    champion: float
    difference: float
    low: float
    high: float
    standard_error: float
    p_value: float
    units: int
    unit: str
    higher_is_better: bool

    @property
    def better(self) -> bool:
        return self.difference > 0 if self.higher_is_better else self.difference < 0

    @property
    def worse(self) -> bool:
        return self.difference != 0 and not self.better

    @property
    def loss(self) -> float:
        """How much worse the challenger is, in the metric's unit; below 0: better."""
        return -self.difference if self.higher_is_better else self.difference

    def power(self, gain: float, level: float) -> float:
        """The probability to detect a true gain of this size, in the metric's unit, at a two-sided level.

        By the normal approximation: Phi(gain / standard error - z of 1 - level / 2).
        """
        if not self.standard_error > 0:
            return 1.0 if gain > 0 else 0.0
        normal = NormalDist()
        return normal.cdf(gain / self.standard_error - normal.inv_cdf(1 - level / 2))

    def least_gain(self, level: float, power: float = 0.8) -> float:
        """The smallest true gain, in the metric's unit, detected with this probability at a two-sided level."""
        normal = NormalDist()
        return self.standard_error * (normal.inv_cdf(1 - level / 2) + normal.inv_cdf(power))

    def no_worse_than(self, margin: float, level: float) -> bool:
        """Whether the challenger is worse by less than the margin, in the metric's unit, at a one-sided level.

        A non-inferiority test by the normal approximation: the upper limit of the loss lies below the margin.
        """
        return self.loss + NormalDist().inv_cdf(1 - level) * self.standard_error < margin


def compare(
    test: PairedTest,
    challenger: str | Path | Sequence[Row],
    champion: str | Path | Sequence[Row],
    how: Resampling,
    *,
    metric: str | None = None,
    level: float | None = None,
) -> Comparison:
    """Compare two models by their rows of the same test items.

    Args:
        test: of the rows' kind.
        challenger, champion: rows, or files of them; aligned on `id`, in any order.
        how: the number of swaps and bootstrap samples, the interval's level, the seed.
        metric: None for the test's default.
        level: the two-sided level of the decision: sampling continues until it is clear; None: `how.samples` swaps.

    Raises:
        UserError: the rows are not of the same test items, or cannot be compared.
    """
    first, second = (read_rows(rows) if isinstance(rows, str | Path) else list(rows) for rows in (challenger, champion))
    second = _align(test, first, second)
    metric = metric or test.default(first, second)
    if metric not in test.metrics:
        raise ValueError(f"{metric!r} is not a known metric; known: {', '.join(test.metrics)}")
    score, columns = test.score(metric)
    values = [np.array([columns(row) for row in rows], dtype=np.float64) for rows in (first, second)]  # (rows, k)
    units = resampling_units(first, "group", "item")
    sums = [_unit_sums(v, units.of_row, units.count) for v in values]  # (units, k)
    totals = [s.sum(axis=0) for s in sums]
    scores = [score(total) for total in totals]
    difference = scores[0] - scores[1]
    low, high, standard_error = _interval(score, sums, how)
    return Comparison(
        metric=metric,
        challenger=scores[0],
        champion=scores[1],
        difference=difference,
        low=low,
        high=high,
        standard_error=standard_error,
        p_value=_randomisation(score, sums, abs(difference), how, level),
        units=units.count,
        unit=units.name,
        higher_is_better=test.metrics[metric],
    )


def _align(test: PairedTest, challenger: list[Row], champion: list[Row]) -> list[Row]:
    """Check that both have the same test items, and return the champion's rows in the challenger's order."""
    if not challenger or not champion:
        raise UserError("one of the two models has no test rows; there is nothing to compare")
    by_id = {row["id"]: row for row in champion}
    ids = {row["id"] for row in challenger}
    if len(by_id) != len(champion) or len(ids) != len(challenger):
        raise UserError("a test item occurs twice in the rows; evaluate the model again")
    missing, extra = len(ids - by_id.keys()), len(by_id.keys() - ids)
    if missing or extra:
        raise UserError(
            f"the two models were tested on different items: {len(challenger)} and {len(champion)} rows,"
            f" {missing} only of the challenger, {extra} only of the champion; evaluate both on the same corpus"
        )
    for row in challenger:
        key = differing_key(test, row, by_id[row["id"]])
        if key is not None:
            raise UserError(
                f"the two models were tested on different items: '{key}' of item {row['id']} differs;"
                " evaluate both on the same corpus, with tokenizers that normalise text alike"
            )
    return [by_id[row["id"]] for row in challenger]


def differing_key(test: PairedTest, first: Row, second: Row) -> str | None:
    """The first key that differs between two rows of one id; None for the same test item."""
    return next((key for key in test.same if first.get(key) != second.get(key)), None)


def ratio(part: float, whole: float) -> float:
    """A mean from sums; NaN for zero items."""
    return float(part / whole) if whole else math.nan


def _unit_sums(values: NDArray[np.float64], of_row: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, of_row, values)
    return sums


def _interval(
    score: Callable[[NDArray[Any]], float], sums: list[NDArray[np.float64]], how: Resampling
) -> tuple[float, float, float]:
    """The interval and standard error of the difference, by a paired bootstrap."""
    generator = np.random.default_rng(how.seed)
    count = len(sums[0])
    found = []
    for _ in range(how.samples):
        weights = np.bincount(generator.integers(0, count, count), minlength=count).astype(np.float64)
        difference = score(weights @ sums[0]) - score(weights @ sums[1])
        if math.isfinite(difference):
            found.append(difference)
    tail = (1 - how.confidence) / 2
    if not found:
        return math.nan, math.nan, math.nan
    low, high = np.quantile(found, [tail, 1 - tail])
    return float(low), float(high), float(np.std(found))


def _randomisation(
    score: Callable[[NDArray[Any]], float],
    sums: list[NDArray[np.float64]],
    seen: float,
    how: Resampling,
    level: float | None,
) -> float:
    """The p-value: the share of random swaps of units with a difference of at least `seen`."""
    generator = np.random.default_rng([how.seed, 1])
    totals = [s.sum(axis=0) for s in sums]
    gap = sums[1] - sums[0]
    # Sums in another order differ in their last bits, which must not put a tie below `seen`.
    threshold = seen * (1 - 1e-9) - 1e-12
    count, drawn, most = 0, 0, how.samples if level is None else max(how.samples, math.ceil(_LARGE / level))
    while drawn < most:
        block = min(_BLOCK, most - drawn)
        moved = generator.integers(0, 2, (block, len(gap)), dtype=np.int8).astype(np.float64) @ gap  # (block, k)
        for one in moved:
            count += not abs(score(totals[0] + one) - score(totals[1] - one)) < threshold
        drawn += block
        if level is not None and count >= _LARGE and drawn >= how.samples:
            break
    return (count + 1) / (drawn + 1)
