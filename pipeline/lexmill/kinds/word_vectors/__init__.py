"""Word vectors: one vector for each token of a vocabulary, near those of tokens that are used alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lexmill.base import layout
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.params.models import Model
from lexmill.params.recipe import Recipe


@dataclass(frozen=True)
class Data:
    """The encoded corpus."""

    corpus: str = spec("the corpus it learns from and is tested on")
    tokenizer: str = spec("its tokenizer; a vector is one of its tokens'")


@dataclass(frozen=True)
class PPMI:
    """The baseline: positive pointwise mutual information, factorised (Levy and Goldberg 2014)."""

    window: int = spec("tokens on each side that are counted, each as 1 / distance", 5, unit="tokens", low=1, high=100)
    dimensions: int = spec("width of its vectors", 64, low=1, high=10_000)


@dataclass(frozen=True)
class Evaluate:
    """How it is evaluated."""

    ppmi: PPMI = spec("its baseline", factory=PPMI)


@dataclass(frozen=True)
class WordVectors(Model):
    """A model with a vector for each token."""

    data: Data = spec("what it learns from")
    recipe: Recipe = spec("how it is trained")
    evaluate: Evaluate = spec("how it is evaluated")


def _inputs(entry: Mapping[str, Any]) -> Inputs:
    pair = (entry["data"]["corpus"], entry["data"]["tokenizer"])
    return Inputs(data=layout.tokens(*pair).as_posix(), encodings=(pair,))


KIND = Kind(
    name="word_vectors",
    words="word-vector model",
    does="gives each word a vector, near those of words that are used alike",
    verb="neighbours",
    corpus="text",
    entry=WordVectors,
    role="static",
    metrics=(
        Metric("analogy_accuracy", "analogies answered", higher_is_better=True),
        Metric("mean_reciprocal_rank", "mean reciprocal rank", higher_is_better=True),
    ),
    counted="pairs",
    inputs=_inputs,
    baseline=lambda entry: {**asdict(PPMI()), **entry["evaluate"].get("ppmi", {})},
    baseline_tokenizer=True,
    facts=lambda entry: [("window", f"{entry.shape.window:,} tokens on each side")],
    example=lambda sample: (sample["text"], sample["neighbours"]),
    limits=lambda _: (
        "A word has one vector, whatever it means in a text.",
        "A word that its tokenizer does not know has none; one of several tokens has the mean of theirs.",
    ),
)
