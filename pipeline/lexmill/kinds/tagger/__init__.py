"""Taggers: a tag for each word of a sentence, as parts of speech or named entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.budgets import MAX_CONTEXT
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.models.declaration import families, family
from lexmill.params.adaptation import Adaptation
from lexmill.params.models import Model, NoSettings
from lexmill.params.recipe import Method


@dataclass(frozen=True)
class Data:
    """Sentences with a tag for each word."""

    corpus: str = spec("the tagged corpus")
    tokenizer: str = spec("its tokenizer")
    max_tokens: int = spec("longer sentences are read in such windows", 128, unit="tokens", low=4, high=MAX_CONTEXT)
    pieces: Literal["first", "mean"] = spec("a word's vector: that of its first piece, or the mean of all", "first")
    bioes: bool = spec("learn entities as B I E S; otherwise as the corpus has them, B I", False)


@dataclass(frozen=True)
class Tagging(Adaptation):
    """A recipe with the head on the words' vectors; `batch` counts sentences."""

    head: Literal["softmax", "crf"] = spec("tags independent of each other given the text, or a chain", "softmax")
    head_dropout: float = spec("dropout before the head", 0.1, low=0, below=1)


@dataclass(frozen=True)
class HiddenMarkovModel(Method):
    """Tags by the one before, words by their tag, from counts smoothed as by Witten and Bell (1991)."""

    method: Literal["hidden_markov_model"] = spec("how the weights are found")


@dataclass(frozen=True)
class AveragedPerceptron(Method):
    """Each wrong tag moves the weights of the word's features; the mean over all words is kept (Collins 2002)."""

    method: Literal["averaged_perceptron"] = spec("how the weights are found")
    epochs: int = spec("passes over train; the weights of the one best on valid are kept", 5, low=1, high=1000)


@dataclass(frozen=True)
class Tagger(Model):
    """A tagger on an encoder, or one of whole words."""

    data: Data = spec("what it learns from")
    recipe: Tagging | HiddenMarkovModel | AveragedPerceptron = spec("how it is trained")
    evaluate: NoSettings = spec("how it is evaluated")

    def cross_errors(self) -> list[str]:
        method, of_words = self.recipe.method, family(self.family).role == "words"
        if isinstance(self.recipe, Tagging):
            found = f"recipe.method: family '{self.family}' has counts and no gradient; set hidden_markov_model or"
            return [f"{found} averaged_perceptron"] if of_words else []
        if not of_words:
            return [f"family: {method} reads words, not tokens; take {' or '.join(families('words'))}"]
        unread = {"max_tokens": self.data.max_tokens, "pieces": self.data.pieces}
        return [
            f"data.{key}: {method} reads whole words and sentences; leave it out"
            for key, value in unread.items()
            if value != Data.__dataclass_fields__[key].default
        ]


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    whole = entry["recipe"]["method"] != "gradient"
    return (
        "It knows only the tags of its corpus, and words are what its corpus calls words: a text that is cut into words"
        " in another way is tagged worse.",
        "A word that is not in its corpus is known by its neighbours alone, or by its letters."
        if whole
        else f"Sentences of more than {entry['data']['max_tokens']} tokens are read in windows, so that a word at"
        " the edge of one sees less of its sentence.",
    )


def _facts(entry: Tagger) -> list[tuple[str, str]]:
    if not isinstance(entry.recipe, Tagging):
        return []
    return [
        ("head", entry.recipe.head),
        ("a word's vector", {"first": "its first piece", "mean": "the mean of its pieces"}[entry.data.pieces]),
        ("window", f"{entry.data.max_tokens:,} tokens"),
    ]


KIND = Kind(
    name="tagger",
    words="tagger",
    does="gives each word of a sentence a tag",
    verb="tag",
    corpus="tagged",
    entry=Tagger,
    role="encoder",
    further_roles=("words",),
    both_directions=True,
    metrics=(
        Metric("entity_f1", "F1 of entities", higher_is_better=True),
        Metric("accuracy", "accuracy a word", higher_is_better=True),
    ),
    counted="words",
    inputs=lambda entry: Inputs(layout.corpus(entry["data"]["corpus"]).as_posix()),
    facts=_facts,
    example=lambda sample: (" ".join(sample["words"]), {"tags": sample["predicted"]}),
    limits=_limits,
)
