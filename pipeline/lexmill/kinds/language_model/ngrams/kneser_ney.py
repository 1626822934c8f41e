"""Interpolated Kneser-Ney n-grams with modified discounts (Chen and Goodman 1998).

    p(w | h) = max(c(h w) - D(c(h w)), 0) / c(h)  +  D-mass(h) / c(h) * p(w | h without its first word)

c is the raw count for the highest order and for n-grams that begin with the start symbol; below it is the
continuation count, the number of different words seen before the n-gram. D takes three values, for counts 1, 2 and
3 or more, estimated from counts of counts; where those are too few (small or character corpora) it falls back to
0.5, 1, 1.5. Unigrams back off to the uniform distribution over the vocabulary, so no token has probability 0.
`order=1` is the smoothed unigram.
"""

from __future__ import annotations

import numpy as np

from lexmill.kinds.language_model.ngrams.ngram import Counts, Integers, Level, NGram, totals

FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


def discounts(counts: Integers) -> tuple[float, float, float]:
    """Return the modified Kneser-Ney discounts of counts 1, 2 and 3 or more (Chen and Goodman 1998, equation 26).

    If the formula would divide by 0, or a discount is not positive or exceeds its count, all three are the fall-back.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == k)) for k in (1, 2, 3, 4))
    if not (n1 and n2 and n3):
        return FALLBACK_DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    if not all(0 < d <= k for k, d in enumerate(found, start=1)):
        return FALLBACK_DISCOUNTS
    return found


class KneserNey(NGram):
    """See the module."""

    def _tables(self, counts: Counts) -> list[Level]:
        return [self._level(counts, order) for order in range(1, self.order + 1)]

    def _level(self, counts: Counts, order: int) -> Level:
        keys, adjusted = counts.keys[order - 1], self._adjusted(counts, order)
        discount = np.array([0.0, *discounts(adjusted)])[np.minimum(adjusted, 3)]
        total = totals(counts, order, adjusted, self.symbols)
        left = totals(counts, order, discount, self.symbols)
        seen = total > 0
        rest = np.ones(len(total) + 1)  # the last: an unknown context leaves all to the lower order
        rest[:-1][seen] = left[seen] / total[seen]
        context = keys // self.symbols
        share = np.divide(adjusted - discount, total[context], out=np.zeros(len(keys)), where=seen[context])
        return Level(keys, share, rest)

    def _adjusted(self, counts: Counts, order: int) -> Integers:
        """Return an order's counts, (G,): raw for the highest and after a start symbol, else continuations."""
        raw = counts.raw[order - 1]
        if order == self.order:
            return raw
        # One position for each different n-gram of the next order; without its first word it is of this order.
        longer = counts.one_position_each(order + 1)
        continuations = np.bincount(counts.numbers[order - 1][longer[longer >= 0]], minlength=len(raw))
        after_start = np.zeros(len(raw), dtype=bool)
        after_start[counts.numbers[order - 1][counts.is_target & counts.from_start[order - 1]]] = True
        return np.where(after_start, raw, continuations)
