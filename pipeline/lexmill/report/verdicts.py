"""Verdicts in words on whether a model beats its baselines, from the rows of `lexmill.report.results`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lexmill.kinds import Kind
from lexmill.report.results import Row


@dataclass(frozen=True)
class Verdict:
    """`state`: clear (beats every baseline), within (as clear, but a baseline is in its interval), some, none (beats
    some baselines, or none), unknown (no baseline, one that is not compared, or no metric)."""

    state: str
    words: str

    @property
    def mark(self) -> str:
        """Return a sign that is readable without colour."""
        return {"clear": "✓", "within": "≈", "some": "◐", "none": "✕"}.get(self.state, "–")


_ORDER = ("none", "some", "within", "clear")
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
    if row.not_compared:
        others = listed(row.not_compared, "and")
        return Verdict("unknown", f"is not compared with {others}, measured on another test set or tokenizer")
    if not row.baselines:
        return Verdict("unknown", "no baseline measured")
    if len(lost) == count:
        return Verdict("none", f"does not beat {listed(lost)}")
    if lost:
        return Verdict("some", f"beats {count - len(lost)} of {count} baselines, not {listed(lost)}")
    best = (max if row.higher_is_better else min)(row.baselines.values())
    if row.low is not None and row.high is not None and row.low <= best <= row.high:
        return Verdict("within", "is ahead of every baseline, but the best one lies within its interval")
    words = {1: "beats its baseline", 2: "beats both baselines"}.get(count, f"beats all {count} baselines")
    return Verdict("clear", words)


def of_model(rows: Sequence[Row]) -> Verdict:
    """Return the worst verdict over all metrics compared with baselines; the first row's words if they agree."""
    if not rows:
        return Verdict("unknown", "not evaluated yet")
    each = [(row, found) for row in rows if (found := of_row(row)).state != "unknown"]
    if not each:
        return next((of_row(row) for row in rows if row.not_compared), of_row(rows[0]))
    row, worst = min(each, key=lambda pair: _ORDER.index(pair[1].state))
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
    clear = [name for name, verdict in judged.items() if verdict.state == "clear"]
    within = [name for name, verdict in judged.items() if verdict.state == "within"]
    if len(clear) == len(verdicts):
        return "The model beats every baseline." if len(clear) == 1 else f"All {len(clear)} models beat every baseline."
    if len(verdicts) == 1:
        return f"The model {next(iter(verdicts.values())).words}."
    first = f"{len(clear)} of {len(verdicts)} models beat{'s' if len(clear) == 1 else ''} every baseline"
    rest = [f"{name} {verdict.words}" for name, verdict in verdicts.items() if name not in clear]
    if len(rest) > _NAMED:  # a headline, not a list; the cards below have each
        lost = len(judged) - len(clear) - len(within)
        rest = [f"{len(within)} within the interval"] if within else []
        rest += [f"{lost} do not"] if lost else []
        rest += [f"{len(verdicts) - len(judged)} not measured"] if len(verdicts) > len(judged) else []
    return "; ".join([first, *rest]) + "."


def of_metrics(kind: Kind, test: Mapping[str, Any], baselines: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what a model's metrics do not clearly beat, as `on accuracy it does not beat majority`; "" for nothing.

    Metrics over tokens are left out: those of other tokenizers cannot be compared.
    """
    rows = [
        Row(
            model="",
            kind=kind.name,
            corpus="",
            metric=metric.name,
            value=float(test[metric.name]),
            low=test.get(f"{metric.name}_low"),
            high=test.get(f"{metric.name}_high"),
            higher_is_better=metric.higher_is_better,
            baselines={name: float(one[metric.name]) for name, one in baselines.items() if metric.name in one},
        )
        for metric in kind.metrics
        if metric.name in test and not metric.over_tokens
    ]
    weak = [(row, found) for row in rows if (found := of_row(row)).state in _ORDER[:-1]]
    if not weak:
        return ""
    row, worst = min(weak, key=lambda pair: _ORDER.index(pair[1].state))
    return f"on {plain(row.metric)} it {worst.words}"


def listed(names: Sequence[str], conjunction: str = "or") -> str:
    """Return names in words, the last after a conjunction."""
    words = [plain(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {conjunction} {words[-1]}"
