"""Length buckets: is a text short or long?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lexmill.base import layout
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.params.models import Model
from lexmill.params.recipe import Recipe

BUCKETS = ("short", "long")


@dataclass(frozen=True)
class Data:
    """Texts, long from some number of words on."""

    corpus: str = spec("the corpus of running text")
    tokenizer: str = spec("its tokenizer")
    long_from: int = spec("a long text has so many words", 5, unit="words", low=1)
    max_tokens: int = spec("longer texts are cut", 32, unit="tokens", low=1)


@dataclass(frozen=True)
class Evaluate:
    """Nothing to choose."""


@dataclass(frozen=True)
class LengthBucket(Model):
    """A network that says how long a text is."""

    data: Data = spec("what it learns from")
    recipe: Recipe = spec("how it is trained")
    evaluate: Evaluate = spec("how it is evaluated")


def bucket(text: str, long_from: int) -> str:
    """Return the right answer."""
    return BUCKETS[len(text.split()) >= long_from]


def _inputs(entry: Mapping[str, Any]) -> Inputs:
    return Inputs(data=layout.corpus(entry["data"]["corpus"]).as_posix())


KIND = Kind(
    name="length_bucket",
    words="length classifier",
    does="says whether a text is short or long",
    verb="bucket",
    corpus="text",
    entry=LengthBucket,
    role="encoder",
    metrics=(Metric("accuracy", "accuracy", higher_is_better=True),),
    counted="texts",
    inputs=_inputs,
    baseline=lambda entry: {"long_from": entry["data"]["long_from"]},
    facts=lambda entry: [("long from", f"{entry.data.long_from} words")],
    example=lambda sample: (sample["text"], sample["predicted"]),
    limits=lambda entry: (f"It reads the first {entry['data']['max_tokens']} tokens of a text.",),
)
