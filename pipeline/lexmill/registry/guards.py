"""Guards of what must not get worse when a better model becomes champion: latency, size, each slice of the test.

A better mean can hide a worse slice, twice the latency, or a model that no longer fits. So a version that won must pass
`promotion.guards`; one guard that got worse keeps the alias where it is:

* latency: the median and the 95th percentile of the time to answer one text of the test split, both models in one
  process, in turns; worse if above `latency` times the champion's, twice in a row;
* size: the bytes of the model folder (weights, tokenizer, config); worse above `size` times the champion's;
* slices: the main metric on each part of the test split by kind: labels, groups, thirds by length; worse if the paired
  test says so at `promotion.significance`, by Holm's method over the parts. The level is not divided over the year as
  for a promotion, for a false alarm costs a day, not a worse model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import Comparison, PairedTest, compare
from lexmill.params import Guards
from lexmill.registry import package
from lexmill.report.results import rounded

Times = Callable[[Path, Path], dict[str, Any]]  # champion, challenger -> seconds a text of each


@dataclass(frozen=True)
class Guard:
    """One guarded metric: both models' metrics and whether the challenger got worse.

    `limit` is the largest allowed metric of the challenger (latency, size), or the p-value below which a worse part
    of the test counts (slices); the metrics are None if nothing could be measured.
    """

    name: str
    champion: float | None
    challenger: float | None
    limit: float | None
    worse: bool
    words: str


def check_latency(guards: Guards, champion: Path, challenger: Path, times: Times) -> list[Guard]:
    """Check the latency with `times`, which measures both packages; return no guard if the params disable it."""
    if not guards.latency:
        return []
    found = _latency(guards.latency, times(champion, challenger))
    if any(guard.worse for guard in found):  # a disturbance is unlikely to repeat
        found = _latency(guards.latency, times(champion, challenger))
    return found


def _latency(most: float, found: dict[str, Any]) -> list[Guard]:
    if "failed" in found:
        worse = found["failed"] == "challenger"
        who = {"challenger": "it does not answer", "champion": "latency not compared: the champion does not answer"}
        words = f"{who.get(found['failed'], 'latency could not be measured')} ({found['why']})"
        return [Guard("latency", None, None, None, worse, words)]
    guarded = []
    for name, share in (("median latency", 50), ("95th percentile latency", 95)):
        old, new = (float(np.percentile(found[which], share)) for which in ("champion", "challenger"))
        guarded.append(_ratio(name, old, new, most, lambda seconds: f"{rounded(1000 * seconds)} ms"))
    return guarded


def check_size(guards: Guards, champion: Path, challenger: Path) -> list[Guard]:
    """Check the size; return no guard if the params disable it."""
    if not guards.size:
        return []
    old, new = (
        sum(path.stat().st_size for path in (folder / package.MODEL).rglob("*") if path.is_file())
        for folder in (champion, challenger)
    )
    return [_ratio("size", old, new, guards.size, lambda count: f"{rounded(count / 1e6)} MB")]


def _ratio(name: str, old: float, new: float, most: float, shown: Callable[[float], str]) -> Guard:
    worse = new > most * old
    ratio = new / old if old else math.inf
    words = f"{name} {shown(new)} against {shown(old)}, {ratio:.2f} times (at most {most:g})"
    return Guard(name, float(old), float(new), most * old, worse, words)


def check_slices(
    test: PairedTest, challenger: Sequence[Row], champion: Sequence[Row], level: float, resampling: Resampling
) -> list[Guard]:
    """Check the parts of the test split.

    Args:
        challenger, champion: rows of the same items, in the same order.
        level: the chance that any part is called worse when none is.
    """
    parts = test.slices(challenger)
    if len(parts) < 2:
        return []
    compared = {}
    for name, places in parts.items():
        new, old = [challenger[i] for i in places], [champion[i] for i in places]
        compared[name] = compare(test, new, old, resampling, level=level / len(parts))
    limits = _holm({name: found.p_value for name, found in compared.items()}, level)
    return [_slice(name, found, limits.get(name)) for name, found in compared.items()]


def _holm(p_values: dict[str, float], level: float) -> dict[str, float]:
    """Return the significant parts by Holm's step-down method, each with its level."""
    found = {}
    for rank, name in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        limit = level / (len(p_values) - rank)
        if not p_values[name] < limit:
            break
        found[name] = limit
    return found


def _slice(name: str, found: Comparison, limit: float | None) -> Guard:
    worse = found.worse and limit is not None
    words = (
        f"{found.metric.replace('_', ' ')} on {name} {rounded(found.challenger)} against {rounded(found.champion)},"
        f" p = {found.p_value:.3g}"
    )
    return Guard(f"slice {name}", found.champion, found.challenger, limit, worse, words)
