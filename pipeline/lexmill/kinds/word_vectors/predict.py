"""Predictions of packaged word vectors: the words nearest to those of a text, each {"word", "cosine"}.

A text's direction is the sum of its words' unit vectors; its own words are no answers. A text without a word that the
model knows has no neighbours. Candidates are the whole words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from lexmill.decoding import predictor
from lexmill.evaluation.word_vectors import WordVectors
from lexmill.evaluation.words import cutter, vocabulary_words

NEAREST = 10


class Predictor(predictor.Predictor):
    """Finds the nearest words."""

    most: ClassVar[Mapping[str, int]] = {"count": 1000}

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"count": NEAREST}

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"word": "", "cosine": 0.5}]

    @cached_property
    def vectors(self) -> WordVectors:
        """The vectors of the candidates."""
        from lexmill.models.input_embeddings import input_embeddings

        return WordVectors(vocabulary_words(self.tokenizer), self.tokenizer, input_embeddings(self.module.state_dict()))

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        cut = cutter()
        return [nearest(self.vectors, cut(text), chosen["count"]) for text in texts]


def nearest(vectors: WordVectors, words: Sequence[str], count: int) -> list[dict[str, Any]]:
    """Return the words nearest to the sum of those words that are known; none where none is.

    Raises:
        UserError: the words cancel each other, or fewer than two words have a vector.
    """
    known = [(1, word) for word in words if vectors.knows(word)]
    found = vectors.neighbours(known, count) if known else []
    return [{"word": word, "cosine": cosine} for word, cosine in found]
