"""Small texts of made words as known tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lexmill.kinds.word_vectors.pairs import KnownTokens
from lexmill.tokenizers import SPECIAL_TOKENS, Tokenizer
from lexmill.tokenizers.kinds import assemble, word_model

FIRST, EOS = len(SPECIAL_TOKENS), 3
# Two classes of words, each with contexts of its own.
CLASSES = [
    ["ape", "cat", "dog", "owl"],
    ["run", "sit", "eat", "nap"],
    ["red", "tan", "shy", "wet"],
    ["oak", "elm", "fir", "ash"],
]
WORDS = [word for some in CLASSES for word in some]


def tokenizer(words: Sequence[str]) -> Tokenizer:
    """The ids of the words are `FIRST`, `FIRST` + 1 ..."""
    return Tokenizer(assemble("word", word_model([f" {word}" for word in words]), lowercase=True), "f" * 64)


def known(*documents: Sequence[int], size: int = 9) -> KnownTokens:
    """Documents of the words 0, 1 ... of `size`; an end token after each; -1: the unknown token."""
    ids = [[*(FIRST + i if i >= 0 else 1 for i in document), EOS] for document in documents]
    lengths = np.array([len(one) for one in ids])
    return KnownTokens(np.concatenate(ids).astype(np.uint16), lengths, tokenizer([f"w{i}" for i in range(size)]))


def of_two_kinds(documents: int, length: int, seed: int = 0) -> list[list[int]]:
    """Documents of the words of `WORDS`: animals and verbs by turns, or adjectives and trees; a fifth is any word.

    Without the latter, no count would be small, and GloVe could fit all of them by its biases alone.
    """
    random = np.random.default_rng(seed)
    size = len(CLASSES[0])
    found = []
    for _ in range(documents):
        first = 2 * random.integers(2)
        words = random.integers(size, size=length) + size * (first + np.arange(length) % 2)
        other = random.random(length) < 0.2
        found.append(np.where(other, random.integers(len(WORDS), size=length), words).tolist())
    return found
