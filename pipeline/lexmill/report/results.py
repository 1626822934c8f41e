"""Each model's test figures beside its floors: what `lexmill results`, the flow's table and the report show.

Read from metrics/evaluate_*/ and metrics/floor_*/ alone, so the same files give the same rows on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.params import Params


@dataclass(frozen=True)
class Row:
    """One figure of one model on the test split of its corpus.

    `low` and `high` bound its interval (None where none was measured); `floors` holds the same figure of each floor
    that was measured on the same test split and in the same unit.
    """

    model: str
    kind: str
    corpus: str
    metric: str
    value: float
    low: float | None
    high: float | None
    higher_is_better: bool
    floors: dict[str, float]

    def beats_floor(self, name: str) -> bool:
        """Whether the model's value is better than that floor's."""
        return self.value > self.floors[name] if self.higher_is_better else self.value < self.floors[name]

    @property
    def beats(self) -> bool:
        """Whether it is better than every floor (true where there is none)."""
        return all(self.beats_floor(name) for name in self.floors)


@dataclass(frozen=True)
class _Kind:
    stage: str  # the metrics folder, evaluate_<stage> and floor_<stage>
    metrics: tuple[tuple[str, bool], ...]  # name, whether higher is better


_KINDS = {
    "language_model": _Kind("language_model", (("bits_per_byte", False), ("perplexity", False))),
    "classifier": _Kind("classifier", (("accuracy", True), ("macro_f1", True))),
    "translator": _Kind("translator", (("bleu", True), ("chrf", True))),
}


def _models(params: Params) -> Iterator[tuple[str, str, Any, Mapping[str, Any]]]:
    groups = (
        ("language_model", params.language_models, params.floors.language_model),
        ("classifier", params.classifiers, params.floors.classifier),
        ("translator", params.translators, params.floors.translator),
    )
    for kind, models, floors in groups:
        for name, model in models.items():
            yield kind, name, model, floors


def _read(path: Path) -> dict[str, Any]:
    try:
        data = storage.read_json(path)
    except ValueError as error:
        raise UserError(f"not valid JSON: {error}; `lexmill run` makes it anew", path) from None
    return data if isinstance(data, dict) else {}


def _floor_metrics(
    kind: str, model: Any, floors: Mapping[str, Any], root: Path
) -> dict[str, tuple[dict[str, Any], bool]]:
    """Each floor's metrics on the model's corpus, and whether its tokens are the model's (perplexity compares)."""
    found: dict[str, tuple[dict[str, Any], bool]] = {}
    tokenizer = getattr(model, "tokenizer", None)
    of_corpus = [(name, floor) for name, floor in floors.items() if floor.corpus == model.corpus]
    # The floor with the model's own tokenizer comes last, so its figures stand.
    for name, floor in sorted(of_corpus, key=lambda entry: getattr(entry[1], "tokenizer", None) == tokenizer):
        path = root / layout.metrics(f"floor_{_KINDS[kind].stage}", name)
        if not path.is_file():
            continue
        same_tokens = getattr(floor, "tokenizer", None) == tokenizer
        for label, metrics in _read(path).items():
            if isinstance(metrics, dict):
                found[label] = (metrics, same_tokens and not label.startswith("byte_"))
    return found


def collect(params: Params, root: str | Path = ".") -> list[Row]:
    """The rows of all evaluated models, in the order of params.yaml.

    Args:
        params: the choices, which name the models and their corpora.
        root: the workspace.

    Raises:
        UserError: a metrics file is not JSON.
    """
    root = Path(root)
    rows: list[Row] = []
    for kind, name, model, floors in _models(params):
        path = root / layout.metrics(f"evaluate_{_KINDS[kind].stage}", name)
        if not path.is_file():
            continue
        test = _read(path).get("test", {})
        floor_metrics = _floor_metrics(kind, model, floors, root)
        for metric, higher in _KINDS[kind].metrics:
            if metric not in test:
                continue  # bits per byte is refused where the tokenizer made unknown tokens
            beside = {
                label: float(metrics[metric])
                for label, (metrics, same_tokens) in floor_metrics.items()
                if metric in metrics and (metric != "perplexity" or same_tokens)
            }
            rows.append(
                Row(
                    model=name,
                    kind=kind,
                    corpus=model.corpus,
                    metric=metric,
                    value=float(test[metric]),
                    low=test.get(f"{metric}_low"),
                    high=test.get(f"{metric}_high"),
                    higher_is_better=higher,
                    floors=beside,
                )
            )
    return rows


def missing(params: Params, root: str | Path = ".") -> list[str]:
    """The models of params.yaml that have no test figures yet."""
    return [
        name
        for kind, name, _, _ in _models(params)
        if not (Path(root) / layout.metrics(f"evaluate_{_KINDS[kind].stage}", name)).is_file()
    ]


def to_json(rows: list[Row], experiment: str) -> str:
    """The rows as canonical JSON: the same rows are the same bytes."""
    return storage.canonical_json(
        {"experiment": experiment, "results": [{**asdict(row), "beats": row.beats} for row in rows]}
    )


def figure(value: float) -> str:
    """A figure as people read it: three decimals below 10, two below 100, one above."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 100 else f"{value:,.1f}"


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """Model, corpus, metric, value with its interval, and the floors (a beaten one marked `<` or `>`)."""
    value = figure(row.value)
    if row.low is not None and row.high is not None:
        value += f" [{figure(row.low)}, {figure(row.high)}]"
    floors = []
    for name, floor in row.floors.items():
        sign = ">" if row.value > floor else "<" if row.value < floor else "="
        mark = "" if row.beats_floor(name) else " (not beaten)"
        floors.append(f"{sign} {figure(floor)} {name.replace('_', ' ')}{mark}")
    arrow = "↑" if row.higher_is_better else "↓"
    return row.model, row.corpus, f"{row.metric.replace('_', ' ')} {arrow}", value, "\n".join(floors)


def markdown(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| model | corpus | metric | value [interval] | beside its floors |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("\n", "<br>") for cell in cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def table(rows: list[Row], experiment: str) -> Any:
    """A rich table of the rows."""
    from rich.table import Table

    shown = Table(title=f"results of '{experiment}' on the test splits", title_justify="left")
    for column in ("model", "corpus", "metric", "value [interval]", "beside its floors"):
        shown.add_column(column)
    for row in rows:
        shown.add_row(*cells(row))
    return shown
