"""The counts before training, in an order independent of hashes, and the trainers of `tokenizers`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import tokenizers
from tokenizers import models, trainers

from lexmill.tokenizers import kinds
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


def trained(stream: Texts, model: models.Model, trainer: trainers.Trainer, kind: kinds.Kind) -> tokenizers.Tokenizer:
    """Train a model on texts, split as this kind splits them."""
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = kinds.pre_tokenizer(kind)
    backend.train_from_iterator(stream(), trainer)
    return backend


def ordinary_tokens(backend: tokenizers.Tokenizer) -> list[str]:
    """The vocabulary in the order of its ids, without the special tokens."""
    vocabulary = backend.get_vocab(with_added_tokens=False)
    return [token for token in sorted(vocabulary, key=vocabulary.__getitem__) if token not in SPECIAL_TOKENS]


def alphabet(characters: Counter[str], most: int) -> list[str]:
    """The `most` most frequent characters, in code-point order; they are always in a subword vocabulary."""
    return sorted(by_frequency(characters)[:most])


def within(stream: Texts, dropped: Iterable[str]) -> Texts:
    """The texts split at the characters of `dropped`, which are left out."""
    pattern = "|".join(map(re.escape, sorted(dropped)))
    if not pattern:
        return stream
    cut = re.compile(pattern)

    def parts() -> Iterator[str]:
        for text in stream():
            yield from filter(None, cut.split(text))

    return parts
