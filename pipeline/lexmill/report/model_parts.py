"""What the page shows of each model: its figures, its training, its outputs."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lexmill.base import layout
from lexmill.params import LBFGS, Classifier, LanguageModel, Optimizer, Params, Translator
from lexmill.report import read, verdicts
from lexmill.report.charts import LARGE, SMALL, Contender, Size, beside_floors, learning_curve
from lexmill.report.confusion import Confusion, confusion
from lexmill.report.results import Row, figure
from lexmill.report.verdicts import Verdict, plain

Model = LanguageModel | Classifier | Translator
_TRAINED_BY = {"language_model": "pretrain", "classifier": "finetune", "translator": "train_translator"}
_LOSS_UNIT = {"language_model": "nats a token", "classifier": "nats a text", "translator": "nats a token"}
# Pictures that the page draws itself from the same numbers.
_DRAWN = ("curve", "confusion")


@dataclass(frozen=True)
class Figure:
    """One line of the table of all figures."""

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
    corpus: str
    languages: tuple[str, ...]
    verdict: Verdict
    main: Row | None
    small_chart: Markup | None  # of the first figure
    charts: list[Markup]
    facts: list[tuple[str, str]]
    curve: Markup | None
    curve_note: str
    figures: list[Figure]
    interval_unit: str
    confusion: Confusion | None
    samples: list[dict[str, Any]]
    floor_samples: list[dict[str, Any]]
    worst: list[dict[str, Any]]
    temperature: float | None
    pictures: list[Picture]


def collect(choices: Params, rows: Sequence[Row], root: Path) -> list[ModelPart]:
    """The sections, in the order of params.yaml.

    Raises:
        UserError: a file is broken.
    """
    return [
        _part(kind, name, choices, [row for row in rows if (row.kind, row.model) == (kind, name)], root)
        for kind, models in _models(choices).items()
        for name in models
    ]


def _models(choices: Params) -> dict[str, Mapping[str, Model]]:
    return {
        "language_model": choices.language_models,
        "classifier": choices.classifiers,
        "translator": choices.translators,
    }


def _part(kind: str, name: str, choices: Params, rows: Sequence[Row], root: Path) -> ModelPart:
    model = _models(choices)[kind][name]
    stage = f"evaluate_{kind}"
    measured = read.json_object(root / layout.metrics(stage, name)) or {}
    trained = read.json_object(root / layout.metrics(_TRAINED_BY[kind], name)) or {}
    samples = read.json_object(root / layout.samples(name)) or {}
    test = measured["test"] if isinstance(measured.get("test"), dict) else {}
    floor_metrics = _floor_metrics(f"floor_{kind}", model.corpus, getattr(choices.floors, kind), root)
    points = read.curve(root / layout.curve(name))
    curve = learning_curve(
        points.get("train_loss", []), points.get("valid_loss", []), _kept(model, trained), _LOSS_UNIT[kind]
    )
    corpus = choices.corpora.get(model.corpus)
    return ModelPart(
        name=name,
        kind=kind,
        corpus=model.corpus,
        languages=corpus.languages if corpus else (),
        verdict=verdicts.of_model(rows),
        main=rows[0] if rows else None,
        small_chart=_chart(rows[0], floor_metrics, SMALL) if rows else None,
        charts=[_chart(row, floor_metrics, LARGE) for row in rows],
        facts=[*_choices(model), *_training(trained)],
        curve=curve,
        curve_note=_curve_note(model, trained, _LOSS_UNIT[kind]),
        figures=_figures(test),
        interval_unit=str(test.get("interval_unit", "")),
        confusion=confusion(measured.get("confusion")),
        samples=_objects(samples.get("samples")),
        floor_samples=_floor_samples(model, getattr(choices.floors, kind), root),
        worst=_objects(samples.get("worst")),
        temperature=read.number(samples.get("temperature")),
        pictures=[
            Picture(plain(path.stem), f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}")
            for path in read.pictures(root / layout.plots(stage, name))
            if path.stem not in _DRAWN
        ],
    )


def _floor_samples(model: Model, floors: Mapping[str, Any], root: Path) -> list[dict[str, Any]]:
    """What the n-gram over the model's own tokens writes, where there is one."""
    for name, floor in floors.items():
        if isinstance(model, LanguageModel) and (floor.corpus, floor.tokenizer) == (model.corpus, model.tokenizer):
            return _objects((read.json_object(root / layout.samples(f"floor-{name}")) or {}).get("samples"))
    return []


def _floor_metrics(stage: str, corpus: str, floors: Mapping[str, Any], root: Path) -> list[tuple[str, dict[str, Any]]]:
    """(floor, its metrics) of every floor that was measured on the corpus."""
    found = []
    for name, floor in floors.items():
        if floor.corpus == corpus:
            data = read.json_object(root / layout.metrics(stage, name)) or {}
            found += [(label, metrics) for label, metrics in data.items() if isinstance(metrics, dict)]
    return found


def _chart(row: Row, floor_metrics: Sequence[tuple[str, dict[str, Any]]], size: Size) -> Markup:
    def contender(name: str, value: float) -> Contender:
        # The same floor may have been measured with several tokenizers; its interval is the one of this value.
        for label, metrics in floor_metrics:
            if label == name and metrics.get(row.metric) == value:
                low, high = (read.number(metrics.get(f"{row.metric}_{end}")) for end in ("low", "high"))
                return Contender(name, value, low, high)
        return Contender(name, value)

    return beside_floors(
        Contender(row.model, row.value, row.low, row.high),
        [contender(name, value) for name, value in row.floors.items()],
        plain(row.metric),
        row.higher_is_better,
        size,
    )


def _kept(model: Model, trained: Mapping[str, Any]) -> float | None:
    """The step whose weights are the model, where they are one step's."""
    if isinstance(model, Classifier) or model.keep == "best":
        return read.number(trained.get("best_step"))
    return read.number(trained.get("steps")) if model.keep == "last" else None


def _curve_note(model: Model, trained: Mapping[str, Any], unit: str) -> str:
    notes = [f"Loss in {unit}"]
    if isinstance(model, Translator) and model.label_smoothing:
        notes.append(f"train is the smoothed loss ({model.label_smoothing:g})")
    if isinstance(model, Translator) and model.keep == "average":
        notes.append(f"the weights are the mean of the last {model.average_last} looks at valid")
    elif (kept := _kept(model, trained)) is not None:
        notes.append(f"ringed: the weights that were kept, step {kept:,.0f}")
    return "; ".join(notes) + "."


def _optimizer(optimizer: Optimizer | LBFGS) -> str:
    """Its name, and the peak learning rate where it has one."""
    return optimizer.name if isinstance(optimizer, LBFGS) else f"{optimizer.name}, learning rate {optimizer.lr:g}"


def _choices(model: Model) -> list[tuple[str, str]]:
    """The choices that say most about a model."""
    facts: list[tuple[str, str]] = []
    if isinstance(model, Classifier):
        facts += [("checkpoint", model.checkpoint), ("batch", f"{model.batch_size:,} texts")]
        return [*facts, ("optimizer", _optimizer(model.optimizer)), ("precision", model.precision)]
    shape = model.shape
    facts += [("family", model.family), ("tokenizer", model.tokenizer)]
    if isinstance(model, LanguageModel):
        facts += [("layers", f"{model.shape.n_layer}"), ("context", f"{model.shape.context:,} tokens")]
    else:
        facts += [
            ("layers", f"{model.shape.encoder_layers} + {model.shape.decoder_layers}"),
            ("beam", f"{model.beam.beam_size}"),
        ]
    facts += [("width", f"{shape.d_model}")]
    if hasattr(shape, "n_head"):  # a recurrent network has none
        facts += [("heads", f"{shape.n_head}")]
    facts += [("batch", f"{model.batch_tokens:,} tokens"), ("optimizer", _optimizer(model.optimizer))]
    return [*facts, ("precision", model.precision)]


_COUNTS = ("parameters", "steps", "tokens", "train_texts", "train_pairs")


def _training(trained: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the training measured."""
    facts = []
    for key in _COUNTS:
        if (value := read.number(trained.get(key))) is not None:
            facts.append((plain(key), f"{value:,.0f}"))
    for key in ("epochs", "valid_loss"):
        if (value := read.number(trained.get(key))) is not None:
            facts.append((plain(key), figure(value)))
    if trained.get("stopped_early"):
        facts.append(("stopped early", "yes"))
    return facts


def _figures(test: Mapping[str, Any]) -> list[Figure]:
    """Every figure of the test split: those with an interval first, then counts, then words."""
    found: list[tuple[int, Figure]] = []
    for key, value in test.items():
        if key == "interval_unit" or (key.endswith(("_low", "_high")) and key.rpartition("_")[0] in test):
            continue
        plain_value = read.number(value)
        low, high = (read.number(test.get(f"{key}_{end}")) for end in ("low", "high"))
        if plain_value is None:
            found.append((2, Figure(plain(key), str(value), "")))
        elif low is None or high is None:
            whole = plain_value.is_integer()
            found.append((1, Figure(plain(key), f"{plain_value:,.0f}" if whole else figure(plain_value), "")))
        else:
            found.append((0, Figure(plain(key), figure(plain_value), f"{figure(low)} to {figure(high)}")))
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0])]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
