"""N-gram counts, and what every n-gram model shares: scores, next-token distributions, samples.

An n-gram is numbered by (number of its first n - 1 words, last word), so that every table is one sorted array of
integers and no order overflows. Each document follows order - 1 start symbols and precedes its end token.
Cost: at most `order` sorts of the training tokens; memory about 40 bytes x tokens x order while fitting, 32 bytes an
n-gram after.

Letters: N positions of the stream, G n-grams of an order, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Documents = Sequence[Sequence[int] | Integers]


@dataclass(frozen=True)
class Counts:
    """The n-grams of a corpus, for orders 1 ... `order` (index order - 1).

    Attributes:
        numbers: of the n-gram of each order that ends at each position, (N,) each.
        keys: the different n-grams of each order, context number * symbols + word, sorted, (G,) each.
        raw: how often each comes before a target, (G,) each.
        from_start: whether the n-gram at each position begins with the start symbol, (N,) each.
        is_target: which positions are predicted, (N,).
    """

    numbers: list[Integers]
    keys: list[Integers]
    raw: list[Integers]
    from_start: list[Mask]
    is_target: Mask

    def contexts(self, order: int) -> int:
        """Return the number of contexts of an order: the n-grams of the order below; the empty one has number 0."""
        return 1 if order == 1 else len(self.keys[order - 2])

    def one_position_each(self, order: int) -> Integers:
        """Return a position at which each n-gram of an order is a target, (G,); -1 if it never is."""
        found = np.full(len(self.keys[order - 1]), -1)
        targets = np.flatnonzero(self.is_target)
        found[self.numbers[order - 1][targets]] = targets
        return found


@dataclass(frozen=True)
class Level:
    """The n-grams of one order as a model sees them.

    Attributes:
        keys: (G,), as in `Counts`.
        share: (G,), the part of the probability that comes from this order.
        rest: (contexts + 1,), the factor of the order below; the last is that of an unknown context.
    """

    keys: Integers
    share: Floats
    rest: Floats


class NGram(ABC):
    """An n-gram model over token ids 0 ... vocab_size - 1, the end token among them; a `Scorer`.

    Args:
        order: the longest n-gram.
        vocab_size: the number of tokens; unigrams back off to the uniform distribution over them.
        eos_id: the end token, predicted after each document.
    """

    def __init__(self, order: int, vocab_size: int, eos_id: int) -> None:
        if order < 1:
            raise ValueError(f"order is {order}; at least 1")
        if not 0 <= eos_id < vocab_size:
            raise ValueError(f"eos_id {eos_id} is outside the vocabulary of {vocab_size}")
        self.order, self.vocab_size, self.eos_id = order, vocab_size, eos_id
        self.start = vocab_size  # precedes a document, is never predicted
        self.symbols = vocab_size + 1
        self._levels: list[Level] = []

    @property
    def levels(self) -> list[Level]:
        """The tables by order, lowest first."""
        self._fitted()
        return self._levels

    @abstractmethod
    def _tables(self, counts: Counts) -> list[Level]:
        """Return the levels, lowest order first."""

    def _mix(self, found: Mask, share: Floats, rest: Floats, lower: Floats) -> Floats:
        """Return a level's value from its share (0 where the n-gram was not `found`), its rest and the value below."""
        return share + rest * lower

    def _normalised(self, values: Floats, contexts: list[Integers]) -> Floats:
        """Return probabilities from the highest level's values; `contexts`: each level's numbers, -1: unknown."""
        return values

    def fit(self, documents: Documents) -> NGram:
        """Count the documents (token ids without end tokens) and set the probabilities.

        Raises:
            UserError: there is no document.
            ValueError: a token is outside the vocabulary.
        """
        if not len(documents):
            raise UserError("the train split is empty; there is nothing to count")
        stream, is_target = self._stream(documents)
        counts = Counts([], [], [], [], is_target)
        context = np.zeros(len(stream), dtype=np.int64)  # the empty context has number 0
        for order in range(1, self.order + 1):
            unique, inverse = number(context * self.symbols + stream)
            counts.keys.append(unique)
            counts.numbers.append(inverse)
            counts.raw.append(np.bincount(inverse[is_target], minlength=len(unique)))
            counts.from_start.append(shift(stream, order - 1, self.start) == self.start)
            context = shift(inverse, 1, 0)
        self._levels = self._tables(counts)
        return self

    def log_probabilities(self, documents: Documents) -> list[Floats]:
        """Return the natural log-probability of each token of each document, then of its end token."""
        self._fitted()
        if not len(documents):
            return []
        stream, is_target = self._stream(documents)
        value = np.full(len(stream), 1 / self.vocab_size)
        context, contexts = np.zeros(len(stream), dtype=np.int64), []
        for level in self._levels:
            contexts.append(context)
            wanted = np.where(context < 0, -1, context * self.symbols + stream)
            place = look_up(level.keys, wanted)
            share = np.where(place < 0, 0.0, level.share[place])
            value = self._mix(share > 0, share, level.rest[context], value)
            context = shift(place, 1, -1)
        probability = self._normalised(value, contexts)
        ends = np.cumsum([len(document) + 1 for document in documents])[:-1]
        return np.split(np.log(probability[is_target]), ends)

    def distribution(self, history: Sequence[int]) -> Floats:
        """Return the probability of each next token after a document's first tokens, (V,)."""
        self._fitted()
        padded = [self.start] * (self.order - 1) + list(history)
        value = np.full(self.vocab_size, 1 / self.vocab_size)
        contexts = []
        for index, level in enumerate(self._levels):
            context = self._context(padded[len(padded) - index :])
            contexts.append(np.array([context]))
            share = np.zeros(self.symbols)
            if context >= 0:
                first, last = np.searchsorted(level.keys, [context * self.symbols, (context + 1) * self.symbols])
                share[level.keys[first:last] % self.symbols] = level.share[first:last]
            share = share[: self.vocab_size]
            rest = np.full(self.vocab_size, level.rest[context])
            value = self._mix(share > 0, share, rest, value)
        return self._normalised(value, contexts)

    def sample(self, history: Sequence[int], length: int, seed: int, never: Sequence[int] = ()) -> list[int]:
        """Draw at most `length` tokens after a document's first tokens, ending before an end token.

        Args:
            never: tokens not to draw (padding and the like).
        """
        generator = np.random.default_rng(seed)
        made: list[int] = []
        while len(made) < length:
            probability = self.distribution([*history, *made])
            probability[list(never)] = 0
            token = int(generator.choice(self.vocab_size, p=probability / probability.sum()))
            if token == self.eos_id:
                break
            made.append(token)
        return made

    def _context(self, words: Sequence[int]) -> int:
        """Return the number of a context; -1 if it was not seen."""
        context = 0
        for level, word in zip(self._levels, words, strict=False):
            context = int(look_up(level.keys, np.array([context * self.symbols + word]))[0])
            if context < 0:
                return -1
        return context

    def _fitted(self) -> None:
        if not self._levels:
            raise ValueError("fit the n-gram model before scoring with it")

    def _stream(self, documents: Documents) -> tuple[Integers, Mask]:
        """Return all documents in one array, with start symbols and end tokens, and which positions are targets."""
        before = self.order - 1
        lengths = np.array([len(document) for document in documents], dtype=np.int64)
        stream = np.full(int(lengths.sum()) + len(lengths) * (before + 1), self.start, dtype=np.int64)
        is_target = np.zeros(len(stream), dtype=bool)
        at = 0
        for document in documents:
            at += before
            stream[at : at + len(document)] = document
            stream[at + len(document)] = self.eos_id
            is_target[at : at + len(document) + 1] = True
            at += len(document) + 1
        if stream[is_target].min() < 0 or stream[is_target].max() >= self.vocab_size:
            raise ValueError(f"a token is outside the vocabulary of {self.vocab_size}")
        return stream, is_target


def totals(counts: Counts, order: int, values: NDArray[np.generic], symbols: int) -> Floats:
    """Return the sum of the values of an order's n-grams over each context, (contexts,)."""
    context = counts.keys[order - 1] // symbols
    sums: Floats = np.bincount(context, weights=values, minlength=counts.contexts(order)).astype(np.float64)
    return sums


def number(keys: Integers) -> tuple[Integers, Integers]:
    """Return the sorted unique keys and each key's place among them: `np.unique`, without a sort for small keys."""
    largest = int(keys.max()) + 1
    if largest > 8 * len(keys):
        unique, inverse = np.unique(keys, return_inverse=True)
        return unique, inverse.astype(np.int64)
    present = np.zeros(largest, dtype=bool)
    present[keys] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[keys]


def look_up(keys: Integers, wanted: Integers) -> Integers:
    """Return the place of each wanted key among the sorted keys; -1 if absent."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)


def shift(values: Integers, by: int, fill: int) -> Integers:
    """Return values moved `by` places to the right, `fill` before them."""
    if by == 0:
        return values
    found = np.full_like(values, fill)
    found[by:] = values[:-by]
    return found
