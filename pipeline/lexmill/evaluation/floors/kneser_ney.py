"""Interpolated Kneser-Ney n-grams with modified discounts (Chen and Goodman 1998), as a `Scorer`.

    p(w | h) = max(c(h w) - D(c(h w)), 0) / c(h)  +  D-mass(h) / c(h) * p(w | h without its first word)

c is the raw count for the highest order and for n-grams that begin with the start symbol; below it is the
continuation count, the number of different words seen before the n-gram. D takes three values, for counts 1, 2 and
3 or more, estimated from counts of counts; where those are too few (small or character corpora) it falls back to
0.5, 1, 1.5. Under the unigrams lies the uniform distribution over the vocabulary, so no token has probability 0.
`order=1` is the smoothed unigram.

An n-gram is numbered by (number of its first n - 1 words, last word), so that every table is one sorted array of
integers and no order overflows. Cost: at most `order` sorts of the training tokens; memory about 40 bytes x tokens x
order while fitting, 32 bytes an n-gram after.

Letters: N positions of the stream, G n-grams of an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lexmill.errors import UserError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


def discounts(counts: Integers) -> tuple[float, float, float]:
    """The modified Kneser-Ney discounts of counts 1, 2 and 3 or more (Chen and Goodman 1998, equation 26).

    Where a count of counts that the formula divides by is 0, or a discount is not positive or exceeds its count,
    all three are the fall-back.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == k)) for k in (1, 2, 3, 4))
    if not (n1 and n2 and n3):
        return FALLBACK_DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    if not all(0 < d <= k for k, d in enumerate(found, start=1)):
        return FALLBACK_DISCOUNTS
    return found


@dataclass(frozen=True)
class _Level:
    """The n-grams of one order and their part of the interpolation."""

    keys: Integers  # (G,), context number * symbols + word, sorted
    share: Floats  # (G,), (count - discount) / count of the context
    rest: Floats  # (contexts + 1,), the mass left to the lower order; 1 where the context was not seen (the last too)


class KneserNey:
    """An n-gram model over token ids 0 ... vocab_size - 1, the end token among them.

    Args:
        order: the longest n-gram.
        vocab_size: the number of tokens, over which the uniform distribution spreads.
        eos_id: the end token, predicted after each document.
    """

    def __init__(self, order: int, vocab_size: int, eos_id: int) -> None:
        if order < 1:
            raise ValueError(f"order is {order}; at least 1")
        if not 0 <= eos_id < vocab_size:
            raise ValueError(f"eos_id {eos_id} is outside the vocabulary of {vocab_size}")
        self.order, self.vocab_size, self.eos_id = order, vocab_size, eos_id
        self.start = vocab_size  # stands before a document, is never predicted
        self._levels: list[_Level] = []

    def fit(self, sequences: Sequence[Sequence[int] | Integers]) -> KneserNey:
        """Count the documents (token ids without end tokens) and set the probabilities.

        Raises:
            UserError: there is no document.
            ValueError: a token is outside the vocabulary.
        """
        if not len(sequences):
            raise UserError("the train split is empty; there is nothing to count")
        stream, is_target = self._stream(sequences)
        numbers: list[Integers] = []  # of the n-gram of each order that ends at each position, (N,)
        keys: list[Integers] = []
        starts: list[NDArray[np.bool_]] = []  # whether its first word is the start symbol, (N,)
        context = np.zeros(len(stream), dtype=np.int64)  # the empty context has number 0
        for order in range(1, self.order + 1):
            unique, inverse = _number(context * (self.start + 1) + stream)
            keys.append(unique)
            numbers.append(inverse)
            starts.append(_shift(stream, order - 1, self.start) == self.start)
            context = _shift(numbers[-1], 1, 0)
        self._levels = []
        for order in range(1, self.order + 1):
            counts = self._counts(order, numbers, starts, is_target, len(keys[order - 1]))
            contexts = 1 if order == 1 else len(keys[order - 2])
            self._levels.append(self._level(keys[order - 1], counts, contexts))
        return self

    def log_probabilities(self, sequences: Sequence[Sequence[int] | Integers]) -> list[Floats]:
        """Natural logarithms of the probability of each token of each document, then of its end token."""
        if not self._levels:
            raise ValueError("fit the n-gram model before scoring with it")
        if not len(sequences):
            return []
        stream, is_target = self._stream(sequences)
        probability = np.full(len(stream), 1 / self.vocab_size)
        context = np.zeros(len(stream), dtype=np.int64)
        for level in self._levels:
            wanted = np.where(context < 0, -1, context * (self.start + 1) + stream)
            number = np.minimum(np.searchsorted(level.keys, wanted), len(level.keys) - 1)
            number = np.where(level.keys[number] == wanted, number, -1)
            share = np.where(number < 0, 0.0, level.share[number])
            probability = share + level.rest[context] * probability
            context = _shift(number, 1, -1)
        ends = np.cumsum([len(sequence) + 1 for sequence in sequences])[:-1]
        return np.split(np.log(probability[is_target]), ends)

    def _stream(self, sequences: Sequence[Sequence[int] | Integers]) -> tuple[Integers, NDArray[np.bool_]]:
        """All documents in one array, each after order - 1 start symbols and before an end token; which are targets."""
        before = self.order - 1
        lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
        stream = np.full(int(lengths.sum()) + len(lengths) * (before + 1), self.start, dtype=np.int64)
        is_target = np.zeros(len(stream), dtype=bool)
        at = 0
        for sequence in sequences:
            at += before
            stream[at : at + len(sequence)] = sequence
            stream[at + len(sequence)] = self.eos_id
            is_target[at : at + len(sequence) + 1] = True
            at += len(sequence) + 1
        if stream[is_target].min() < 0 or stream[is_target].max() >= self.vocab_size:
            raise ValueError(f"a token is outside the vocabulary of {self.vocab_size}")
        return stream, is_target

    def _counts(
        self,
        order: int,
        numbers: list[Integers],
        starts: list[NDArray[np.bool_]],
        is_target: NDArray[np.bool_],
        size: int,
    ) -> Integers:
        """Counts of the n-grams of an order, (G,): raw for the highest and after a start symbol, else continuations."""
        raw = np.bincount(numbers[order - 1][is_target], minlength=size)
        if order == self.order:
            return raw
        # One position for each different n-gram of the next order; without its first word it is one of ours.
        longer = numbers[order][is_target]
        one_each = np.full(longer.max() + 1, -1)
        one_each[longer] = np.flatnonzero(is_target)
        continuations = np.bincount(numbers[order - 1][one_each[one_each >= 0]], minlength=size)
        after_start = np.zeros(size, dtype=bool)
        after_start[numbers[order - 1][is_target & starts[order - 1]]] = True
        return np.where(after_start, raw, continuations)

    def _level(self, keys: Integers, counts: Integers, contexts: int) -> _Level:
        discount = np.array([0.0, *discounts(counts)])[np.minimum(counts, 3)]
        context = keys // (self.start + 1)
        totals = np.bincount(context, weights=counts, minlength=contexts)
        left = np.bincount(context, weights=discount, minlength=contexts)
        seen = totals > 0
        rest = np.ones(contexts + 1)  # index -1, an unknown context, gives all to the lower order
        rest[:-1][seen] = left[seen] / totals[seen]
        share = np.divide(counts - discount, totals[context], out=np.zeros(len(keys)), where=seen[context])
        return _Level(keys, share, rest)


def _number(keys: Integers) -> tuple[Integers, Integers]:
    """The different keys, sorted, and the place of each key among them: `np.unique`, without a sort for small keys."""
    largest = int(keys.max()) + 1
    if largest > 8 * len(keys):
        unique, inverse = np.unique(keys, return_inverse=True)
        return unique, inverse.astype(np.int64)
    present = np.zeros(largest, dtype=bool)
    present[keys] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[keys]


def _shift(values: Integers, by: int, fill: int) -> Integers:
    """Values moved `by` places to the right, `fill` before them."""
    if by == 0:
        return values
    found = np.full_like(values, fill)
    found[by:] = values[:-by]
    return found
