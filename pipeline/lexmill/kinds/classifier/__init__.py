"""Classifiers: one label per text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.budgets import MAX_CONTEXT
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.params.models import Model
from lexmill.params.recipe import Recipe


@dataclass(frozen=True)
class Data:
    """Labelled texts."""

    corpus: str = spec("the labelled corpus")
    tokenizer: str = spec("its tokenizer: a checkpoint's")
    max_tokens: int = spec("longer texts are cut", 128, unit="tokens", low=4, high=MAX_CONTEXT)
    max_train: int = spec("train on at most so many texts; 0: all", 0, unit="texts", low=0)


@dataclass(frozen=True)
class Evaluate:
    """Settings of the evaluation: none."""


@dataclass(frozen=True)
class LinearProbe:
    """The optimum of the head alone on a frozen encoder, by L-BFGS (Liu and Nocedal 1989) over the whole of train."""

    method: Literal["linear_probe"] = spec("how the weights are found")
    l2: float = spec("L2 penalty on the head's weights, over the number of texts", 1.0, low=0, high=1e9)
    history: int = spec("pairs that approximate the curvature", 10, low=1, high=1000)
    max_iterations: int = spec("most iterations", 500, low=1, high=1_000_000)
    tolerance: float = spec("stop when the largest gradient is below", 1e-6, above=0, high=1)


@dataclass(frozen=True)
class FineTuning(Recipe):
    """A recipe with the head's dropout."""

    head_dropout: float = spec("dropout before the head", 0.1, low=0, below=1)


@dataclass(frozen=True)
class Classifier(Model):
    """A classifier on an encoder."""

    data: Data = spec("what it learns from")
    recipe: FineTuning | LinearProbe = spec("how it is trained")  # type: ignore[assignment]
    evaluate: Evaluate = spec("how it is evaluated")


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "It knows only the labels of its corpus and always answers with one of them, even for a text that fits none.",
        f"Texts longer than {entry['data']['max_tokens']} tokens are cut. Scores are not calibrated.",
    )


KIND = Kind(
    name="classifier",
    words="classifier",
    does="gives a text one of its labels, with a score for each",
    verb="classify",
    corpus="labelled",
    entry=Classifier,
    role="encoder",
    metrics=(
        Metric("accuracy", "accuracy", higher_is_better=True),
        Metric("macro_f1", "macro F1", higher_is_better=True),
    ),
    counted="texts",
    inputs=lambda entry: Inputs(layout.corpus(entry["data"]["corpus"]).as_posix()),
    facts=lambda entry: [("longest text", f"{entry.data.max_tokens:,} tokens")],
    example=lambda sample: (sample["text"], {"label": sample["predicted"], "score": sample["score"]}),
    limits=_limits,
)
