"""Each model's test metrics next to its baselines, for `lexmill results`, the flow's table and the report.

They are read from metrics/evaluate/ and metrics/baseline/ alone, so the same files give the same rows on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lexmill import kinds
from lexmill.base import layout, storage
from lexmill.kinds import Kind
from lexmill.params import Params
from lexmill.params.models import Model
from lexmill.report import read

_COLUMNS = ("model", "corpus", "metric", "value [interval]", "baselines")


@dataclass(frozen=True)
class Row:
    """One metric of one model on a test set of its corpus.

    `low` and `high` bound its interval (None if none was measured); `baselines` holds the same metric of each baseline
    measured on the same test set and in the same unit; `split` is `test`, which decides, or a further test set.
    """

    model: str
    kind: str
    corpus: str
    metric: str
    value: float
    low: float | None
    high: float | None
    higher_is_better: bool
    baselines: dict[str, float]
    split: str = "test"

    @property
    def measured_on(self) -> str:
        """The corpus and, unless it is `test`, the test set, for people."""
        return self.corpus if self.split == "test" else f"{self.corpus}: {self.split}"

    def beats_baseline(self, name: str) -> bool:
        """Return whether the model's value is better than that baseline's."""
        return self.value > self.baselines[name] if self.higher_is_better else self.value < self.baselines[name]

    @property
    def beats(self) -> bool:
        """Return whether it is better than every baseline (true if there is none)."""
        return all(self.beats_baseline(name) for name in self.baselines)


def baseline_metrics(params: Params, model: Model, root: Path) -> dict[str, tuple[dict[str, Any], bool]]:
    """Return each baseline's metrics on the model's corpus, and whether they are over the model's tokens."""
    found: dict[str, tuple[dict[str, Any], bool]] = {}
    for name, one in params.baselines_of(model).items():  # the one with the model's own tokenizer is last and wins
        same_tokens = one.tokenizer == model.data.tokenizer
        for label, metrics in (read.json_object(root / layout.metrics("baseline", name)) or {}).items():
            if isinstance(metrics, dict):
                found[label] = (metrics, same_tokens and not label.startswith("byte_"))
    return found


def collect(params: Params, root: str | Path = ".") -> list[Row]:
    """Return the rows of all evaluated models of a workspace, in the order of params.yaml.

    Raises:
        UserError: a metrics file is no JSON object.
    """
    root = Path(root)
    rows: list[Row] = []
    for name, model in params.models.items():
        evaluated = read.json_object(root / layout.metrics("evaluate", name)) or {}
        measured = baseline_metrics(params, model, root)
        kind, corpus = kinds.find(model.kind), model.data.corpus
        rows += of_metrics(kind, name, corpus, evaluated.get("test", {}), measured=measured)
        for split, metrics in read.mapping(evaluated.get("tests")).items():
            rows += of_metrics(kind, name, corpus, read.mapping(metrics), split=split)
    return rows


def of_metrics(
    kind: Kind,
    name: str,
    corpus: str,
    test: Mapping[str, Any],
    *,
    measured: Mapping[str, tuple[dict[str, Any], bool]] = MappingProxyType({}),
    split: str = "test",
) -> list[Row]:
    """Return the rows of one model on one test set.

    Args:
        test: its metrics.
        measured: from `baseline_metrics`.
    """
    return [
        Row(
            model=name,
            kind=kind.name,
            corpus=corpus,
            metric=metric.name,
            value=float(test[metric.name]),
            low=test.get(f"{metric.name}_low"),
            high=test.get(f"{metric.name}_high"),
            higher_is_better=metric.higher_is_better,
            baselines={
                label: float(metrics[metric.name])
                for label, (metrics, same_tokens) in measured.items()
                if metric.name in metrics and (same_tokens or not metric.over_tokens)
            },
            split=split,
        )
        for metric in kind.metrics
        if metric.name in test  # no bits per byte if the tokenizer made unknown tokens
    ]


def missing(params: Params, root: str | Path = ".") -> list[str]:
    """Return the models of params.yaml without test metrics."""
    return [name for name in params.models if not (Path(root) / layout.metrics("evaluate", name)).is_file()]


def to_json(rows: list[Row], experiment: str) -> str:
    """Return the rows as canonical JSON: the same rows are the same bytes."""
    found = [{**asdict(row), "beats": row.beats} for row in rows]
    return storage.canonical_json({"experiment": experiment, "results": found})


def rounded(value: float) -> str:
    """Return a metric as text: three decimals below 10, two below 100, one above."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 100 else f"{value:,.1f}"


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """Return model, corpus and test set, metric, value with interval, baselines (a beaten one marked `<` or `>`)."""
    value = rounded(row.value)
    if row.low is not None and row.high is not None:
        value += f" [{rounded(row.low)}, {rounded(row.high)}]"
    baselines = []
    for name, baseline in row.baselines.items():
        sign = ">" if row.value > baseline else "<" if row.value < baseline else "="
        mark = "" if row.beats_baseline(name) else " (not beaten)"
        baselines.append(f"{sign} {rounded(baseline)} {name.replace('_', ' ')}{mark}")
    arrow = "↑" if row.higher_is_better else "↓"
    return row.model, row.measured_on, f"{row.metric.replace('_', ' ')} {arrow}", value, "\n".join(baselines)


def markdown(rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("\n", "<br>") for cell in cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def table(rows: list[Row], title: str) -> Any:
    """Return the rows as a rich table."""
    from rich.table import Table

    shown = Table(*_COLUMNS, title=title, title_justify="left")
    for row in rows:
        shown.add_row(*cells(row))
    return shown
