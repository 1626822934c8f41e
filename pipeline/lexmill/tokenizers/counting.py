"""Counts that training starts from, in an order that no hash decides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import tokenizers

from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS

Texts = Callable[[], Iterable[str]]  # a fresh pass over the texts at each call


def count_characters(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    return counts


def by_frequency(counts: Counter[str]) -> list[str]:
    """Most frequent first, equal ones in code-point order."""
    return sorted(counts, key=lambda key: (-counts[key], key))


def ordinary_tokens(backend: tokenizers.Tokenizer) -> list[str]:
    """The vocabulary in the order of its ids, without the special tokens."""
    vocabulary = backend.get_vocab(with_added_tokens=False)
    return [token for token in sorted(vocabulary, key=vocabulary.__getitem__) if token not in SPECIAL_TOKENS]


def alphabet(characters: Counter[str], most: int) -> list[str]:
    """The `most` most frequent characters, in code-point order; a subword vocabulary keeps these whole."""
    return sorted(by_frequency(characters)[:most])


def within(stream: Texts, dropped: Iterable[str]) -> Texts:
    """The texts cut at the characters of `dropped`, which are left out."""
    pattern = "|".join(map(re.escape, sorted(dropped)))
    if not pattern:
        return stream
    cut = re.compile(pattern)

    def parts() -> Iterator[str]:
        for text in stream():
            yield from filter(None, cut.split(text))

    return parts
