"""A network mixed with n-grams of its training text and of the document that it reads.

    p(w | h) = a_0 p_network(w | h) + a_1 p_ngram(w | h) + sum over k of a_(1 + k) c(h_k w) / c(h_k)

h_k is the last k - 1 tokens of h, and c counts in the document so far: a cache (Kuhn and De Mori 1990), of n-grams. The
weights a depend on b, the longest h_k that the document has had before, and sum to 1: longer ones get no weight.

Cost of a prediction: the network's, O(order * log n-grams) look-ups, O(length of the document) comparisons.

Shape letters: B batch, T time, V vocabulary, K the longest n-gram of a document, N positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from lexmill.models.common.document_ngrams import distributions, of_targets
from lexmill.models.common.ngram_tables import NgramTables
from lexmill.models.common.window import window_start


class MixtureCache:
    """The tokens of each row so far, (B, T), and the network's cache of those from `start` on."""

    def __init__(self) -> None:
        self.network: Any = None
        self.start = 0
        self.tokens: Tensor | None = None

    def add(self, tokens: Tensor) -> Tensor:
        """Append tokens, (B, T), and return all."""
        self.tokens = tokens if self.tokens is None else torch.cat([self.tokens, tokens], dim=1)
        return self.tokens

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows` (int64, (new B,)), in that order, repeats allowed."""
        if self.network is not None:
            self.network.reorder(rows)
        if self.tokens is not None:
            self.tokens = self.tokens.index_select(0, rows)


class Mixture(nn.Module):
    """A causal network and the n-grams beside it; what it gives as logits are log-probabilities.

    Args:
        network: a `CausalModel`.
        sizes: n-grams and contexts of each order of the tables, see `NgramTables`.
        document_order: K.
        eos_id: the end token; a row begins with it, or in the middle of a document.

    Attributes:
        weights: a, (K + 1, 2 + K) float64: by b, of the network, the tables and each order.
    """

    weights: Tensor
    unlimited = True  # where the network's window moves on, the document's n-grams still reach back to its start

    def __init__(self, network: Any, sizes: Sequence[Sequence[int]], document_order: int, eos_id: int) -> None:
        super().__init__()
        self.network = network
        self.tables = NgramTables(sizes, network.vocab_size)
        self.document_order, self.eos_id = document_order, eos_id
        self.register_buffer("weights", torch.zeros(document_order + 1, 2 + document_order, dtype=torch.float64))

    @property
    def context(self) -> int:
        """The network's window."""
        return int(self.network.context)

    def bfloat16(self) -> Self:
        """Round the network's weights alone: the n-grams' would lose their third digit."""
        self.network.bfloat16()
        return self

    def new_cache(self, batch: int) -> MixtureCache:
        """Return an empty cache; the first tokens fix the batch."""
        return MixtureCache()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return next-token log-probabilities, (B, T) int64 -> (B, T, V); each row is one document."""
        return self._mixed(self.network(tokens), tokens)

    def next_logits(self, tokens: Tensor, cache: MixtureCache) -> Tensor:
        """Return the log-probabilities after the last token, (B, V); `tokens` are those after the cache's."""
        stream = cache.add(tokens)
        start = 0 if self.network.unlimited else window_start(stream.shape[1], self.context)
        if cache.network is None or start != cache.start:
            cache.network, cache.start, tokens = self.network.new_cache(len(stream)), start, stream[:, start:]
        logits = self.network.next_logits(tokens, cache.network)
        return self._mixed(logits[:, None], stream)[:, 0]

    def parts(self, of_network: Tensor, stream: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is mixed for the targets of a document, (N, 2 + K) float64, and b of each, (N,).

        Args:
            of_network: the network's probability of each target, (N,) float64.
            stream: the document between two end tokens, (N + 1,); its targets are all but the first.
        """
        counted, longest = of_targets(stream, self.document_order)
        contexts = self.tables.contexts(stream[:-1], self.eos_id)
        of_tables = self.tables.of_targets(contexts, stream[1:])
        return torch.cat([of_network[:, None], of_tables[:, None], counted], dim=1), longest

    def _mixed(self, logits: Tensor, stream: Tensor) -> Tensor:
        """Return log-probabilities (B, T, V) from the network's logits after the last T tokens of a stream (B, ...)."""
        rows = []
        for own, row in zip(logits.double(), stream, strict=True):
            counted, longest = distributions(row, len(own), self.document_order, self.network.vocab_size)
            contexts = self.tables.contexts(row, self.eos_id)[-len(own) :]
            parts = [own.softmax(dim=-1)[:, None], self.tables.distributions(contexts)[:, None], counted]
            mixed = torch.einsum("tp,tpv->tv", self.weights[longest], torch.cat(parts, dim=1))
            rows.append(mixed.log().float())
        return torch.stack(rows)
