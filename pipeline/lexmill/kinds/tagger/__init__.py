"""Taggers: a tag for each word of a sentence, as parts of speech or named entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.budgets import MAX_CONTEXT
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.params.models import Model, NoSettings
from lexmill.params.recipe import Recipe


@dataclass(frozen=True)
class Data:
    """Sentences with a tag for each word."""

    corpus: str = spec("the tagged corpus")
    tokenizer: str = spec("its tokenizer")
    max_tokens: int = spec("longer sentences are read in such windows", 128, unit="tokens", low=4, high=MAX_CONTEXT)
    pieces: Literal["first", "mean"] = spec("a word's vector: that of its first piece, or the mean of all", "first")
    bioes: bool = spec("learn entities as B I E S; otherwise as the corpus has them, B I", False)


@dataclass(frozen=True)
class Tagging(Recipe):
    """A recipe with the head on the words' vectors; `batch` counts sentences."""

    head: Literal["softmax", "crf"] = spec("tags independent of each other given the text, or a chain", "softmax")
    head_dropout: float = spec("dropout before the head", 0.1, low=0, below=1)


@dataclass(frozen=True)
class Tagger(Model):
    """A tagger on an encoder."""

    data: Data = spec("what it learns from")
    recipe: Tagging = spec("how it is trained")
    evaluate: NoSettings = spec("how it is evaluated")


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "It knows only the tags of its corpus, and words are what its corpus calls words: a text that is cut into words"
        " in another way is tagged worse.",
        f"Sentences of more than {entry['data']['max_tokens']} tokens are read in windows, so that a word at"
        " the edge of one sees less of its sentence.",
    )


KIND = Kind(
    name="tagger",
    words="tagger",
    does="gives each word of a sentence a tag",
    verb="tag",
    corpus="tagged",
    entry=Tagger,
    role="encoder",
    metrics=(
        Metric("entity_f1", "F1 of entities", higher_is_better=True),
        Metric("accuracy", "accuracy a word", higher_is_better=True),
    ),
    counted="words",
    inputs=lambda entry: Inputs(layout.corpus(entry["data"]["corpus"]).as_posix()),
    facts=lambda entry: [
        ("head", entry.recipe.head),
        ("a word's vector", {"first": "its first piece", "mean": "the mean of its pieces"}[entry.data.pieces]),
        ("window", f"{entry.data.max_tokens:,} tokens"),
    ],
    example=lambda sample: (" ".join(sample["words"]), {"tags": sample["predicted"]}),
    limits=_limits,
)
