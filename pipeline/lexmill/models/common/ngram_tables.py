"""Interpolated n-grams as sorted tables that are part of a network's weights.

    p(w | h) = share(h w) + rest(h) * p(w | h without its first token)

share is 0 for an n-gram that is not in the table, rest 1 for a context that is not; below unigrams all tokens are
equal.An n-gram is numbered by (number of its first tokens, last token). A document follows order - 1 start symbols, V.

Cost: order^2 / 2 searches of a context; memory 12 bytes an n-gram, 4 a context.

Shape letters: N contexts, n the order, V vocabulary, G n-grams of an order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class NgramTables(nn.Module):
    """N-grams of the orders 1 ... n.

    Args:
        sizes: for each order the n-grams, and the contexts, the unknown one included.
        vocab_size: V.

    Attributes (buffers, by order):
        keys_1 ...: context number * (V + 1) + token, (G,) int64, sorted.
        share_1 ...: (G,) float32.
        rest_1 ...: (contexts,) float32, by context number; the last one is of unknown contexts.
    """

    def __init__(self, sizes: Sequence[Sequence[int]], vocab_size: int) -> None:
        super().__init__()
        self.vocab_size, self.order = vocab_size, len(sizes)
        for order, (grams, contexts) in enumerate(sizes, start=1):
            self.register_buffer(f"keys_{order}", torch.zeros(grams, dtype=torch.int64))
            self.register_buffer(f"share_{order}", torch.zeros(grams))
            self.register_buffer(f"rest_{order}", torch.ones(contexts))

    def contexts(self, stream: Tensor, eos_id: int) -> Tensor:
        """Return the last n - 1 tokens at each position, (N,) -> (N, n - 1); before the start are start symbols.

        An end token at the start counts as the start.
        """
        start = self.vocab_size
        stream = torch.cat([stream.new_full((max(0, self.order - 2),), start), stream])
        first = self.order - 2
        if 0 <= first < len(stream) and stream[first] == eos_id:
            stream[first] = start
        if self.order == 1:
            return stream.new_empty(len(stream), 0)
        return stream.unfold(0, self.order - 1, 1)

    def of_targets(self, contexts: Tensor, targets: Tensor) -> Tensor:
        """Return the probability of each target, (N, n - 1) and (N,) -> (N,) float64."""
        found = torch.full((len(targets),), 1 / self.vocab_size, dtype=torch.float64, device=targets.device)
        for order in range(1, self.order + 1):
            keys, share, rest = self._table(order)
            number = self._number(contexts, order)
            place = _place(keys, torch.where(number < 0, -1, number * self._symbols + targets))
            own = torch.where(place < 0, 0.0, share[place].double())
            found = own + rest[number].double() * found
        return found

    def distributions(self, contexts: Tensor) -> Tensor:
        """Return the probability of each token, (N, n - 1) -> (N, V) float64."""
        shape, device = (len(contexts), self.vocab_size), contexts.device
        found = torch.full(shape, 1 / self.vocab_size, dtype=torch.float64, device=device)
        for order in range(1, self.order + 1):
            keys, share, rest = self._table(order)
            number = self._number(contexts, order)
            known = number.clamp(min=0) * self._symbols
            first = torch.searchsorted(keys, known)
            last = torch.where(number < 0, first, torch.searchsorted(keys, known + self._symbols))
            many = last - first
            row = torch.arange(len(contexts), device=device).repeat_interleave(many)
            place = torch.arange(int(many.sum()), device=device) - (many.cumsum(0) - many - first)[row]
            token = keys[place] % self._symbols
            in_text = token < self.vocab_size  # a start symbol is never predicted
            own = torch.zeros_like(found)
            own[row[in_text], token[in_text]] = share[place[in_text]].double()
            found = own + rest[number].double()[:, None] * found
        return found

    @property
    def _symbols(self) -> int:
        return self.vocab_size + 1

    def _table(self, order: int) -> tuple[Tensor, Tensor, Tensor]:
        keys, share, rest = (self.get_buffer(f"{name}_{order}") for name in ("keys", "share", "rest"))
        return keys, share, rest

    def _number(self, contexts: Tensor, order: int) -> Tensor:
        """Return the numbers of the last order - 1 tokens, (N,); -1: unknown."""
        number = torch.zeros(len(contexts), dtype=torch.int64, device=contexts.device)
        for token, length in zip(contexts.unbind(1)[self.order - order :], range(1, order), strict=True):
            key = torch.where(number < 0, -1, number * self._symbols + token)
            number = _place(self.get_buffer(f"keys_{length}"), key)
        return number


def _place(keys: Tensor, wanted: Tensor) -> Tensor:
    """Return the place of each wanted key among the sorted keys; -1 if absent."""
    place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    return torch.where(keys[place] == wanted, place, -1)
