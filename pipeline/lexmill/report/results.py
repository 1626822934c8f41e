"""Each model's test metrics next to its baselines, for `lexmill results`, the flow's table and the report.

They are read from metrics/evaluate/ and metrics/baseline/, so the same files give the same rows on any machine; where
the prepared corpus and the tokenizer are there too, metrics of older ones are marked as stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lexmill import kinds
from lexmill.base import layout, storage
from lexmill.kinds import Kind
from lexmill.params import Params
from lexmill.report import measured, read
from lexmill.report.measured import Measured

_COLUMNS = ("model", "corpus", "metric", "value [interval]", "baselines")
_STALE = "stale: measured on an older test set or tokenizer; `lexmill run` measures again"


@dataclass(frozen=True)
class Row:
    """One metric of one model on a test set of its corpus.

    Attributes:
        low, high: the bounds of its interval (None if none was measured).
        baselines: the same metric of each baseline measured on the same test set and in the same unit.
        split: `test`, which decides, or a further test set.
        stale: it was measured on another test set or tokenizer than the present ones.
        not_compared: baselines that were measured on another test set, or other tokens, than this model.
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
    stale: bool = False
    not_compared: tuple[str, ...] = ()

    @property
    def measured_on(self) -> str:
        """The corpus and, unless it is `test`, the test set, for people."""
        return self.corpus if self.split == "test" else f"{self.corpus}: {self.split}"

    def beats_baseline(self, name: str) -> bool:
        """Return whether the model's value is better than that baseline's."""
        return self.value > self.baselines[name] if self.higher_is_better else self.value < self.baselines[name]

    @property
    def beats(self) -> bool:
        """Return whether it is better than every baseline (true if there is none, false if one is not compared)."""
        return not self.not_compared and all(self.beats_baseline(name) for name in self.baselines)


def collect(params: Params, root: str | Path = ".") -> list[Row]:
    """Return the rows of all evaluated models of a workspace, in the order of params.yaml.

    Raises:
        UserError: a metrics file is no JSON object, or a prepared corpus is damaged.
    """
    root = Path(root)
    rows: list[Row] = []
    for name, model in params.models.items():
        evaluated = read.json_object(root / layout.metrics("evaluate", name)) or {}
        files = {key: baseline_file(key, root) for key in params.baselines_of(model)}
        compared = measured.beside(params, model, evaluated, files)
        kind, corpus = kinds.find(model.kind), model.data.corpus
        stale = measured.stale_splits(evaluated, corpus, model.data.tokenizer, root)
        test = read.mapping(evaluated.get("test"))
        rows += of_metrics(kind, name, corpus, test, beside=compared, stale="test" in stale)
        for split, metrics in read.mapping(evaluated.get("tests")).items():
            rows += of_metrics(kind, name, corpus, read.mapping(metrics), split=split, stale=split in stale)
    return rows


def baseline_file(key: str, root: Path) -> dict[str, Any]:
    """Return a file of metrics/baseline/, empty if there is none.

    Raises:
        UserError: it is no JSON object.
    """
    return read.json_object(root / layout.metrics("baseline", key)) or {}


def of_metrics(
    kind: Kind,
    name: str,
    corpus: str,
    test: Mapping[str, Any],
    *,
    beside: Mapping[str, Measured] = MappingProxyType({}),
    split: str = "test",
    stale: bool = False,
) -> list[Row]:
    """Return the rows of one model on one test set.

    Args:
        test: its metrics.
        beside: its baselines, from `lexmill.report.measured`.
        stale: whether the test set or the tokenizer has changed since.
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
            baselines={label: float(one.metrics[metric.name]) for label, one in beside.items() if one.compares(metric)},
            split=split,
            stale=stale,
            not_compared=tuple(label for label, one in beside.items() if one.is_left_out(metric)),
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
    """Return a metric as text: three decimals below 10, two below 100, one below 1,000."""
    decimals = next((count for count, bound in ((3, 10), (2, 100), (1, 1000)) if abs(value) < bound), 0)
    return f"{value:,.{decimals}f}"


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """Return model, corpus and test set, metric, value with interval, baselines (a beaten one marked `<` or `>`).

    What is stale is marked as such.
    """
    value = rounded(row.value)
    if row.low is not None and row.high is not None:
        value += f" [{rounded(row.low)}, {rounded(row.high)}]"
    if row.stale:
        value += " (stale)"
    baselines = []
    for name, baseline in row.baselines.items():
        sign = ">" if row.value > baseline else "<" if row.value < baseline else "="
        mark = "" if row.beats_baseline(name) else " (not beaten)"
        baselines.append(f"{sign} {rounded(baseline)} {name.replace('_', ' ')}{mark}")
    if row.not_compared:
        baselines.append(f"not compared (stale): {', '.join(name.replace('_', ' ') for name in row.not_compared)}")
    arrow = "↑" if row.higher_is_better else "↓"
    return row.model, row.measured_on, f"{row.metric.replace('_', ' ')} {arrow}", value, "\n".join(baselines)


def stale_note(rows: Sequence[Row]) -> str:
    """Return a sentence on the mark of stale metrics; "" if there are none."""
    return _STALE if any(row.stale or row.not_compared for row in rows) else ""


def markdown(rows: list[Row]) -> str:
    """Return the rows as a Markdown table, followed by a sentence if some are stale."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("\n", "<br>") for cell in cells(row)) + " |" for row in rows]
    lines += ["", note] if (note := stale_note(rows)) else []
    return "\n".join(lines) + "\n"


def table(rows: list[Row], title: str) -> Any:
    """Return the rows as a rich table."""
    from rich.table import Table

    shown = Table(*_COLUMNS, title=title, title_justify="left")
    for row in rows:
        shown.add_row(*cells(row))
    return shown
