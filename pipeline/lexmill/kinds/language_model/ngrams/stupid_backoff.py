"""Stupid back-off (Brants et al. 2007), normalised afterwards so that it has a perplexity.

    S(w | h) = c(h w) / c(h)                            where h w was seen
             = 0.4 * S(w | h without its first word)    elsewhere; under the unigrams 0.4 / V

S does not sum to 1; `scores` returns it as published. The probabilities are S / Z(h), with

    Z(h) = 1 + 0.4 * (Z(h') - sum of S(w | h') over the w seen after h),    h' = h without its first word,

and 0.4 * Z(h') for a context that was never seen, so that Z needs no sum over the vocabulary.
"""

from __future__ import annotations

import numpy as np

from lexmill.kinds.language_model.ngrams.ngram import Counts, Documents, Floats, Integers, Level, Mask, NGram, totals

ALPHA = 0.4


class StupidBackoff(NGram):
    """See the module."""

    def __init__(self, order: int, vocab_size: int, eos_id: int) -> None:
        super().__init__(order, vocab_size, eos_id)
        self._sums: list[Floats] = []  # Z of each context of each level
        self._raw_scores = False

    def scores(self, documents: Documents) -> list[Floats]:
        """Return the natural logarithm of S, not normalised, of each token of each document, then of its end token."""
        self._raw_scores = True
        try:
            return self.log_probabilities(documents)
        finally:
            self._raw_scores = False

    def _mix(self, found: Mask, share: Floats, rest: Floats, lower: Floats) -> Floats:
        return np.where(found, share, rest * lower)

    def _normalised(self, values: Floats, contexts: list[Integers]) -> Floats:
        if self._raw_scores:
            return values
        total = np.ones(1)
        for sums, context in zip(self._sums, contexts, strict=True):
            total = np.where(context < 0, ALPHA * total, sums[context])
        return values / total

    def _tables(self, counts: Counts) -> list[Level]:
        levels = []
        lower = np.full(len(counts.is_target), 1 / self.vocab_size)  # S of the order below at each position, (N,)
        sums_below = np.ones(1)
        self._sums = []
        for order in range(1, self.order + 1):
            keys, raw = counts.keys[order - 1], counts.raw[order - 1]
            context = keys // self.symbols
            total = totals(counts, order, raw, self.symbols)
            share = np.divide(raw, total[context], out=np.zeros(len(keys)), where=raw > 0)
            at = counts.one_position_each(order)
            below = np.where(at < 0, 0.0, lower[at])  # S(w | h') of each n-gram h w
            seen_below = totals(counts, order, below, self.symbols)
            backed = sums_below[self._shorter(counts, order)]  # Z(h') of each context h
            self._sums.append(np.where(total > 0, 1 + ALPHA * (backed - seen_below), ALPHA * backed))
            levels.append(Level(keys, share, np.full(len(total) + 1, ALPHA)))
            here = share[counts.numbers[order - 1]]
            lower = np.where(here > 0, here, ALPHA * lower)
            sums_below = self._sums[-1]
        return levels

    @staticmethod
    def _shorter(counts: Counts, order: int) -> Integers:
        """Return for each context of an order the number of the context without its first word."""
        found = np.zeros(counts.contexts(order), dtype=np.int64)
        if order > 2:
            found[counts.numbers[order - 2]] = counts.numbers[order - 3]
        return found
