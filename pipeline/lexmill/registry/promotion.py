"""Whether a new version becomes the champion.

The first version does. Later the alias moves only when the new version is better than the present champion on the
same test items, beyond chance. Nightly comparisons add up: at a level of 0.05 each, a year of retraining without any
gain would promote eighteen times. So `promotion.significance` is the chance of a false promotion in a year, spent in
equal parts over `tests_per_year` comparisons; the price is power, so the chance to find a gain of the size
`promotion.gain` is reported with each decision. A version that won must then pass the guards (`guards`).

A model of fresher data may replace an equal one where `promotion.fresher_margin` is above 0: when it is worse by less
than this share of the champion's metric, beyond chance (a non-inferiority test, one-sided, at the same level).

The same test items: rows with the same id and the same contents. When the test split has grown or lost items since the
champion was tested, the champion is scored anew on the present one (`comparing`). Where that cannot be, the two are
compared on the items they share, which is fair because splits are sticky: neither has trained on them; below a half
shared, nothing is decided and the champion stays.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import Comparison, PairedTest, compare, differing_key
from lexmill.params import Promotion
from lexmill.registry.guards import Guard
from lexmill.report.results import rounded

_LEAST_SHARED = 0.5
_ENOUGH_POWER = 0.8


@dataclass(frozen=True)
class Decision:
    """Whether the alias moves, why in one sentence, and the comparison it rests on (None without one).

    Attributes:
        level: what p had to be below.
        power: the chance that a true gain of `promotion.gain` is found.
        least_gain: the true gain that is found with a chance of 0.8, in the metric's unit.
        fresher: whether the version has learned from newer data than the champion.
        guards: the results of the guards, if it won.
    """

    promote: bool
    reason: str
    comparison: Comparison | None = None
    level: float | None = None
    power: float | None = None
    least_gain: float | None = None
    fresher: bool = False
    guards: tuple[Guard, ...] = ()

    @property
    def word(self) -> str:
        return "champion" if self.promote else "stays"

    def plain(self) -> dict[str, Any]:
        """Return plain data for JSON; a metric that is not finite becomes text."""
        comparison = None if self.comparison is None else _finite(dataclasses.asdict(self.comparison))
        values = {"level": self.level, "power": self.power, "least_gain": self.least_gain}
        guards = [_finite(dataclasses.asdict(guard)) for guard in self.guards]
        decided = {"promote": self.promote, "reason": self.reason, "fresher": self.fresher}
        return {**decided, "comparison": comparison, "guards": guards, **_finite(values)}

    def guarded(self, guards: Sequence[Guard]) -> Decision:
        """Return the decision with its guards; one that got worse keeps the alias where it is."""
        worse = [guard.words for guard in guards if guard.worse]
        if not worse:
            return dataclasses.replace(self, guards=tuple(guards))
        reason = f"a guarded metric got worse: {'; '.join(worse)}; the test itself said {self.reason}"
        return dataclasses.replace(self, promote=False, reason=reason, guards=tuple(guards))


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def decide(
    test: PairedTest,
    challenger: Sequence[Row],
    champion: Sequence[Row],
    *,
    champion_version: str,
    rule: Promotion,
    resampling: Resampling,
    fresher: bool = False,
) -> Decision:
    """Compare a new version with the champion by their test rows.

    Args:
        test: of their kind.
        challenger, champion: the test rows of each.
        champion_version: for the sentence.
        rule: `promotion` of params.yaml.
        resampling: of the paired test.
        fresher: whether the challenger has learned from newer data than the champion.
    """
    who = f"version {champion_version}"
    shared, theirs = shared_rows(test, challenger, champion)
    most = max(len(challenger), len(champion))
    if len(shared) < _LEAST_SHARED * most:
        return Decision(
            False,
            f"the test data changed: only {len(shared):,} of {most:,} items are those that {who} was tested on,"
            " too few to compare; `lexmill promote` if you want the new one",
        )
    try:
        found = compare(test, shared, theirs, resampling, level=rule.level)
    except UserError as error:
        return Decision(False, f"it cannot be compared with {who}: {error}")
    on = "" if len(shared) == most else f" on the {len(shared):,} of {most:,} test items that both saw"
    metrics = (
        f"{found.metric.replace('_', ' ')} {rounded(found.challenger)} against {rounded(found.champion)} of {who}{on},"
        f" p = {found.p_value:.3g}"
    )
    gain = rule.gain * abs(found.champion)
    power, least = found.power(gain, rule.level), found.least_gain(rule.level)
    found_with = (
        f"if the new one truly gained {rounded(gain)}, a test of this size would notice with a chance of {power:.0%}"
    )
    if power < _ENOUGH_POWER:
        found_with += f", {rounded(least)} with {_ENOUGH_POWER:.0%}: a larger test split notices smaller gains"

    def decided(promote: bool, reason: str) -> Decision:
        return Decision(promote, f"{reason}; {found_with}", found, rule.level, power, least, fresher)

    if found.better and found.p_value < rule.level:
        return decided(True, f"better: {metrics}")
    if fresher and rule.fresher_margin and found.no_worse_than(rule.fresher_margin * abs(found.champion), rule.level):
        return decided(True, f"its data are fresher and it is worse by less than {rule.fresher_margin:.1%}: {metrics}")
    if found.better:
        return decided(False, f"better, but chance explains it (p must be below {rule.level:.2g}): {metrics}")
    return decided(False, f"{'worse' if found.worse else 'no better'}: {metrics}")


def shared_rows(test: PairedTest, challenger: Sequence[Row], champion: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of the items that both were tested on, in the challenger's order."""
    by_id = {row["id"]: row for row in champion}
    pairs = [
        (row, by_id[row["id"]])
        for row in challenger
        if row["id"] in by_id and differing_key(test, row, by_id[row["id"]]) is None
    ]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
