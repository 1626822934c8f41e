"""The page's section on each model: its metrics, training and outputs."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lexmill import kinds
from lexmill.base import layout
from lexmill.params import Params
from lexmill.params.models import Model
from lexmill.params.recipe import Steps
from lexmill.report import read, verdicts
from lexmill.report.charts import LARGE, SMALL, Contender, Size, beside_baselines, learning_curve
from lexmill.report.confusion import ClassMetrics, Confusion, confusion, per_class
from lexmill.report.measured import by_name
from lexmill.report.results import Row, baseline_file, rounded
from lexmill.report.verdicts import Verdict, plain

_DRAWN = ("curve", "confusion")  # pictures that the page draws itself from the same numbers
_ATTENTION = "attention"  # beside the texts


@dataclass(frozen=True)
class Metric:
    """One line of the table of all metrics."""

    name: str
    value: str
    interval: str


@dataclass(frozen=True)
class Picture:
    name: str
    address: str  # a data: URL


@dataclass(frozen=True)
class ModelPart:
    """One model's section."""

    name: str
    kind: str
    section: str  # the template of what it made
    corpus: str
    languages: tuple[str, ...]
    verdict: Verdict
    main: Row | None
    small_chart: Markup | None  # of the first metric
    charts: list[Markup]
    facts: list[tuple[str, str]]
    curve: Markup | None
    curve_note: str
    further: list[Row]
    metrics: list[Metric]
    interval_unit: str
    confusion: Confusion | None
    per_class: list[ClassMetrics]
    samples: list[dict[str, Any]]
    baseline_samples: list[dict[str, Any]]
    worst: list[dict[str, Any]]
    telling: list[dict[str, Any]]
    temperature: float | None
    attention: str
    pictures: list[Picture]


def collect(choices: Params, rows: Sequence[Row], root: Path) -> list[ModelPart]:
    """Return the sections, in the order of params.yaml.

    Raises:
        UserError: a file is broken.
    """
    return [
        _part(name, model, choices, [row for row in rows if row.model == name], root)
        for name, model in choices.models.items()
    ]


def _part(name: str, model: Model, choices: Params, rows: Sequence[Row], root: Path) -> ModelPart:
    kind = kinds.find(model.kind)
    further, rows = [row for row in rows if row.split != "test"], [row for row in rows if row.split == "test"]
    measured = read.json_object(root / layout.metrics("evaluate", name)) or {}
    trained = read.json_object(root / layout.metrics("train", name)) or {}
    samples = read.json_object(root / layout.samples(name)) or {}
    test = measured["test"] if isinstance(measured.get("test"), dict) else {}
    baselines = _baseline_metrics(model, choices, root)
    points = read.curve(root / layout.curve(name))
    unit = f"nats a {kind.counted.removesuffix('s')}"
    curve = learning_curve(points.get("train_loss", []), points.get("valid_loss", []), _kept(model, trained), unit)
    corpus = choices.corpora.get(model.data.corpus)
    return ModelPart(
        name=name,
        kind=kind.words,
        section=f"{kind.name}/section.html.j2",
        corpus=model.data.corpus,
        languages=corpus.languages if corpus else (),
        verdict=verdicts.of_model(rows),
        main=rows[0] if rows else None,
        small_chart=_chart(rows[0], baselines, SMALL) if rows else None,
        charts=[_chart(row, baselines, LARGE) for row in rows],
        facts=[*_choices(model), *kind.facts(model), *_training(trained)],
        curve=curve,
        curve_note=_curve_note(model, trained, unit),
        further=further,
        metrics=_metrics(test),
        interval_unit=str(test.get("interval_unit", "")),
        confusion=confusion(measured.get("confusion")),
        per_class=per_class(measured.get("per_class")),
        samples=_objects(samples.get("samples")),
        baseline_samples=_baseline_samples(model, choices, root),
        worst=_objects(samples.get("worst")),
        telling=_objects(samples.get("telling")),
        temperature=read.number(samples.get("temperature")),
        attention=_address(path) if (path := root / layout.plots(name) / f"{_ATTENTION}.png").is_file() else "",
        pictures=[
            Picture(plain(path.stem), _address(path))
            for path in read.pictures(root / layout.plots(name))
            if path.stem not in (*_DRAWN, _ATTENTION)
        ],
    )


def _address(path: Path) -> str:
    """Return a picture as an address, so that the page loads nothing."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _baseline_samples(model: Model, choices: Params, root: Path) -> list[dict[str, Any]]:
    """Return the texts of the generating baselines over the model's own tokens."""
    for name, one in choices.baselines_of(model).items():
        if one.tokenizer == model.data.tokenizer:
            return _objects((read.json_object(root / layout.samples(f"baseline-{name}")) or {}).get("samples"))
    return []


def _baseline_metrics(model: Model, choices: Params, root: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (baseline, its metrics) for all measured on the corpus."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for name in choices.baselines_of(model):
        found += by_name(baseline_file(name, root)).items()
    return found


def _chart(row: Row, baseline_metrics: Sequence[tuple[str, Mapping[str, Any]]], size: Size) -> Markup:
    def contender(name: str, value: float) -> Contender:
        # The same baseline may have been measured with several tokenizers; take the interval of this value.
        for label, metrics in baseline_metrics:
            if label == name and metrics.get(row.metric) == value:
                low, high = (read.number(metrics.get(f"{row.metric}_{end}")) for end in ("low", "high"))
                return Contender(name, value, low, high)
        return Contender(name, value)

    return beside_baselines(
        Contender(row.model, row.value, row.low, row.high),
        [contender(name, value) for name, value in row.baselines.items()],
        plain(row.metric),
        row.higher_is_better,
        size,
    )


def _kept(model: Model, trained: Mapping[str, Any]) -> float | None:
    """Return the step of the model's weights, if they are those of one step."""
    keep = model.recipe.keep if isinstance(model.recipe, Steps) else "last"
    key = {"best": "best_step", "last": "steps"}.get(keep)
    return read.number(trained.get(key)) if key else None


def _curve_note(model: Model, trained: Mapping[str, Any], unit: str) -> str:
    notes, recipe = [f"Loss in {unit}"], model.recipe
    if smoothing := getattr(recipe, "label_smoothing", 0.0):
        notes.append(f"train is the smoothed loss ({smoothing:g})")
    if isinstance(recipe, Steps) and recipe.keep in ("average", "average_best"):
        which = "last" if recipe.keep == "average" else "best"
        notes.append(f"the weights are the mean of the {which} {recipe.averaged} validations")
    elif (kept := _kept(model, trained)) is not None:
        notes.append(f"ringed: the weights that were kept, step {kept:,.0f}")
    return "; ".join(notes) + "."


# The most informative sizes of a network, in words.
_SIZES = {
    "n_layer": "layers",
    "encoder_layers": "encoder layers",
    "decoder_layers": "decoder layers",
    "d_model": "width",
    "n_head": "heads",
}


def _choices(model: Model) -> list[tuple[str, str]]:
    """Return the most informative choices of a model."""
    facts = [("family", model.family), ("tokenizer", model.data.tokenizer)]
    if layout.checkpoint("") == Path(model.start).parent:
        facts.append(("starts from", Path(model.start).name))
    facts += [(words, f"{getattr(model.shape, key)}") for key, words in _SIZES.items() if hasattr(model.shape, key)]
    recipe = model.recipe
    if not isinstance(recipe, Steps):
        return [*facts, ("method", plain(recipe.method))]
    counted = kinds.find(model.kind).counted
    optimizer = f"{recipe.optimizer.name}, learning rate {recipe.optimizer.lr:g}"
    facts += [("batch", f"{recipe.batch:,} {counted}"), ("optimizer", optimizer)]
    return [*facts, ("precision", recipe.precision)]


_COUNTS = ("parameters", "steps", "tokens", "train_texts", "train_pairs")


def _training(trained: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the metrics of the training."""
    facts = []
    for key in (*_COUNTS, "epochs", "valid_loss"):
        if (value := read.number(trained.get(key))) is not None:
            facts.append((plain(key), f"{value:,.0f}" if key in _COUNTS else rounded(value)))
    if trained.get("stopped_early"):
        facts.append(("stopped early", "yes"))
    return facts


def _metrics(test: Mapping[str, Any]) -> list[Metric]:
    """Return every metric of the test split: those with an interval first, then counts, then words."""
    found: list[tuple[int, Metric]] = []
    for key, value in test.items():
        if key == "interval_unit" or (key.endswith(("_low", "_high")) and key.rpartition("_")[0] in test):
            continue
        plain_value = read.number(value)
        low, high = (read.number(test.get(f"{key}_{end}")) for end in ("low", "high"))
        if plain_value is None:
            found.append((2, Metric(plain(key), str(value), "")))
        elif low is None or high is None:
            whole = plain_value.is_integer()
            found.append((1, Metric(plain(key), f"{plain_value:,.0f}" if whole else rounded(plain_value), "")))
        else:
            found.append((0, Metric(plain(key), rounded(plain_value), f"{rounded(low)} to {rounded(high)}")))
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0])]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
