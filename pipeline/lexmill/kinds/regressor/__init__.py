"""Regressors: a number, or a level of a scale, for a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.models.declaration import Pooling
from lexmill.params.adaptation import Adaptation
from lexmill.params.labelled import LabelledTexts, long_text_words
from lexmill.params.models import Model, NoSettings


@dataclass(frozen=True)
class Data(LabelledTexts):
    """Labelled texts whose labels are numbers."""

    corpus: str = spec("the labelled corpus; its labels are numbers")


@dataclass(frozen=True)
class Regression(Adaptation):
    """A recipe with what the numbers mean."""

    target: Literal["number", "level"] = spec(
        "number: least squares; level: a scale of few numbers, whether the text is above each (Niu et al. 2016)",
        "number",
    )
    head_dropout: float = spec("dropout before the head", 0.1, low=0, below=1)
    pooling: Pooling = spec("what the head reads of the states of a text's tokens", "mean")


@dataclass(frozen=True)
class Regressor(Model):
    """A regressor on an encoder."""

    data: Data = spec("what it learns from")
    recipe: Regression = spec("how it is trained")
    evaluate: NoSettings = spec("how it is evaluated")


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "It gives every text a number, also one that the scale does not fit.",
        long_text_words(entry["data"]),
    )


KIND = Kind(
    name="regressor",
    words="regressor",
    does="gives a text a number",
    verb="rate",
    corpus="labelled",
    label_form="number",
    entry=Regressor,
    role="encoder",
    both_directions=True,
    metrics=(
        Metric("mean_absolute_error", "mean absolute error", higher_is_better=False),
        Metric("pearson", "Pearson's r", higher_is_better=True),
        Metric("spearman", "Spearman's rho", higher_is_better=True),
    ),
    counted="texts",
    inputs=lambda entry: Inputs(layout.corpus(entry["data"]["corpus"]).as_posix()),
    facts=lambda entry: [("longest text", f"{entry.data.max_tokens:,} tokens")],
    example=lambda sample: (sample["text"], sample["predicted"]),
    limits=_limits,
)
