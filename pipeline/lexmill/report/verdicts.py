"""Verdicts in words on whether a model beats its baselines, from the rows of `lexmill.report.results`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lexmill.report.results import Row


@dataclass(frozen=True)
class Verdict:
    """`state`: clear (beats every baseline), within (as clear, but a baseline is in its interval), some, none (beats
    some baselines, or none), unknown (no baseline or no metric)."""

    state: str
    words: str

    @property
    def mark(self) -> str:
        """Return a sign that is readable without colour."""
        return {"clear": "✓", "within": "≈", "some": "◐", "none": "✕"}.get(self.state, "–")


_NAMED = 2  # models that the summary names
_NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "macro_f1": "macro-F1",
    "ter": "TER",
    "tfidf_logistic_regression": "TF-IDF + logistic regression",
}


def plain(name: str) -> str:
    """Return a key in words, with the field's own spelling of its names."""
    return _NAMES.get(name, name.replace("_", " "))


def of_row(row: Row) -> Verdict:
    """Return the verdict on one metric."""
    count = len(row.baselines)
    lost = [name for name in row.baselines if not row.beats_baseline(name)]
    if not row.baselines:
        return Verdict("unknown", "no baseline measured")
    if len(lost) == count:
        return Verdict("none", f"does not beat {_listed(lost)}")
    if lost:
        return Verdict("some", f"beats {count - len(lost)} of {count} baselines, not {_listed(lost)}")
    best = (max if row.higher_is_better else min)(row.baselines.values())
    if row.low is not None and row.high is not None and row.low <= best <= row.high:
        return Verdict("within", "ahead of every baseline, but the best one lies within its interval")
    words = {1: "beats its baseline", 2: "beats both baselines"}.get(count, f"beats all {count} baselines")
    return Verdict("clear", words)


def of_model(rows: Sequence[Row]) -> Verdict:
    """Return the worst verdict over all metrics with a baseline; the first row's words if they agree."""
    if not rows:
        return Verdict("unknown", "not evaluated yet")
    with_baselines = [row for row in rows if row.baselines]
    if not with_baselines:
        return Verdict("unknown", "no baseline measured")
    order = ("none", "some", "within", "clear")
    each = [(row, of_row(row)) for row in with_baselines]
    row, worst = min(each, key=lambda pair: order.index(pair[1].state))
    if worst.state == each[0][1].state:
        return each[0][1]
    return Verdict(worst.state, f"on {plain(row.metric)} {worst.words}")


def summary(verdicts: dict[str, Verdict]) -> str:
    """Return one sentence on all models."""
    judged = {name: verdict for name, verdict in verdicts.items() if verdict.state != "unknown"}
    if not verdicts:
        return "This project has no model."
    if not judged:
        return "No model was compared with a baseline yet."
    good = [name for name, verdict in judged.items() if verdict.state in ("clear", "within")]
    if len(good) == len(judged) == len(verdicts):
        return "The model beats every baseline." if len(good) == 1 else f"All {len(good)} models beat every baseline."
    first = f"{len(good)} of {len(verdicts)} models beat{'s' if len(good) == 1 else ''} every baseline"
    rest = [f"{name} {verdict.words}" for name, verdict in verdicts.items() if name not in good]
    if len(rest) > _NAMED:  # a headline, not a list; the cards below have each
        rest = [f"{len(judged) - len(good)} do not"] if len(judged) > len(good) else []
        rest += [f"{len(verdicts) - len(judged)} not measured"] if len(verdicts) > len(judged) else []
    return "; ".join([first, *rest]) + "."


def _listed(names: Sequence[str]) -> str:
    words = [plain(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
