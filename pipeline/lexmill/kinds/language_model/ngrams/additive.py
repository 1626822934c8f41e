"""Add-k n-grams (Lidstone 1920): p(w | h) = (c(h w) + k) / (c(h) + k V).

The simplest smoothing, and a weak one: a baseline for Kneser-Ney. An unknown context gives the uniform distribution.
"""

from __future__ import annotations

import numpy as np

from lexmill.kinds.language_model.ngrams.ngram import Counts, Level, NGram, totals


class AddK(NGram):
    """See the module.

    Args:
        k: added to each count, above 0.
    """

    def __init__(self, order: int, vocab_size: int, eos_id: int, k: float) -> None:
        super().__init__(order, vocab_size, eos_id)
        if not k > 0:
            raise ValueError(f"k is {k}; it must be above 0")
        self.k = k

    def _tables(self, counts: Counts) -> list[Level]:
        """Orders below the highest only number the contexts: they pass the uniform distribution on."""
        below = [
            Level(counts.keys[order - 1], np.zeros(len(counts.keys[order - 1])), np.ones(counts.contexts(order) + 1))
            for order in range(1, self.order)
        ]
        keys, raw = counts.keys[-1], counts.raw[-1]
        total = totals(counts, self.order, raw, self.symbols)
        added = self.k * self.vocab_size
        rest = np.append(added / (total + added), 1.0)
        return [*below, Level(keys, raw / (total[keys // self.symbols] + added), rest)]
