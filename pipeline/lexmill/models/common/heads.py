"""Heads that turn a network's hidden states into a task's output.

Shape letters: B texts, T tokens, D width, L labels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from lexmill.base.budgets import MAX_CONTEXT
from lexmill.models.common.causal import CausalModel
from lexmill.models.common.sparse_rows import SparseRows, linear
from lexmill.models.common.text_encoder import TextEncoder

_CAUSAL_STD = 0.02  # of a head on a causal network


class PooledClassifier(nn.Module):
    """Label logits of texts: an encoder or a causal network, one vector of its states, dropout, one matrix.

    The mean, not the first token: sentence encoders are trained that way, and a plain BERT loses nothing by it.

    Args:
        encoder: a `TextEncoder`, or a `CausalModel`.
        n_labels: L.
        dropout: on the pooled vector.
        pooling: over the real tokens: their mean, the largest value of each feature (`max`), the last one's, or a mean
            weighted by the softmax of a learned product (`attention`: Yang et al. 2016 without the layer before it).
        bias: of the matrix.
        separator: of pairs, the token after the first text; an encoder with `n_segments` above 1 is given the segments.
    """

    def __init__(
        self,
        encoder: nn.Module,
        n_labels: int,
        dropout: float,
        pooling: str = "mean",
        separator: int | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.encoder, self.pooling, self.separator = encoder, pooling, separator
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self.width, n_labels, bias=bias)
        std = getattr(encoder, "init_std", _CAUSAL_STD)
        nn.init.normal_(self.head.weight, std=std)
        if bias:
            nn.init.zeros_(self.head.bias)
        if pooling == "attention":
            self.attention = nn.Linear(self.width, 1, bias=False)
            nn.init.normal_(self.attention.weight, std=std)

    @property
    def width(self) -> int:
        """D."""
        if isinstance(self.encoder, CausalModel):
            return int(self.encoder.shape.d_model)
        return self._encoder.d_model

    @property
    def _encoder(self) -> TextEncoder:
        return cast(TextEncoder, self.encoder)

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        if not isinstance(self.encoder, CausalModel):
            return self._encoder.max_positions
        return MAX_CONTEXT if self.encoder.unlimited else self.encoder.context

    def forward(self, tokens: Tensor, mask: Tensor, language: bool = False) -> Tensor:
        """Return logits (B, L) of token ids (B, T) and a mask (B, T), true at real tokens; raises like `features`.

        Args:
            language: of a causal network, return (B, L + 1): the last column is the mean nats a token of the text, from
                its second token on, by the network's own output matrix.
        """
        if not language:
            return self.logits(tokens, mask)
        hidden = self._states(tokens, mask)
        logits: Tensor = self.head(self.dropout(self._pooled(hidden, mask)))
        return torch.cat([logits.float(), self._nats(hidden, tokens, mask)[:, None]], dim=1)

    def logits(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return logits (B, L); see `forward`."""
        logits: Tensor = self.head(self.dropout(self.features(tokens, mask)))
        return logits

    def _nats(self, hidden: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the mean nats (B,) of the real tokens after the first, from the states before them."""
        read, real = hidden[:, :-1], mask[:, 1:]
        logits = cast(CausalModel, self.encoder).logits(read[real]).float()  # (N, V)
        nats = cross_entropy(logits, tokens[:, 1:][real], reduction="none")  # (N,)
        sums = nats.new_zeros(len(tokens)).index_add(0, real.nonzero()[:, 0], nats)
        return sums / real.sum(dim=1).clamp(min=1)

    def features(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the input of the matrix: one vector (B, D) of the states of the real tokens, padded at the end.

        Raises:
            ValueError: the shapes differ, or a text is longer than the encoder's positions.
        """
        if tokens.shape != mask.shape or tokens.ndim != 2:
            raise ValueError(f"tokens are {tuple(tokens.shape)}, mask is {tuple(mask.shape)}; both must be (B, T)")
        return self._pooled(self._states(tokens, mask), mask)

    def _states(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, T) -> (B, T, D)."""
        if isinstance(self.encoder, CausalModel):
            return self.encoder.hidden(tokens)  # padding comes later and cannot be seen
        paired = self.separator is not None and getattr(self.encoder, "n_segments", 1) > 1
        more = (self._segments(tokens),) if paired else ()
        return self._encoder.hidden(tokens, mask, *more)

    def _pooled(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) -> (B, D)."""
        real = mask.unsqueeze(-1)  # (B, T, 1)
        if self.pooling == "max":
            return hidden.masked_fill(~real, -torch.inf).amax(dim=1)
        if self.pooling == "last":
            return hidden[torch.arange(mask.shape[0], device=mask.device), mask.sum(dim=1) - 1]
        if self.pooling == "attention":
            scores = self.attention(hidden).masked_fill(~real, -torch.inf)
            return (hidden * scores.softmax(dim=1)).sum(dim=1)
        weights = real.to(hidden.dtype)
        pooled: Tensor = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        return pooled

    def _segments(self, tokens: Tensor) -> Tensor:
        """Return 0 up to the first separator of each row, 1 after it, (B, T)."""
        ends = (tokens == torch.tensor(self.separator, device=tokens.device)).long()
        return (ends.cumsum(dim=1) - ends).clamp(max=1)


class BagClassifier(PooledClassifier):
    """Label logits of texts from sparse features: a `Bag`, dropout, one matrix."""

    def logits(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """See `PooledClassifier.forward`."""
        found = self.sparse(tokens, mask)
        found = replace(found, values=self.dropout(found.values))
        return linear(found, self.head.weight, self.head.bias)

    def features(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the input of the matrix, (B, F)."""
        return self.sparse(tokens, mask).dense()

    def sparse(self, tokens: Tensor, mask: Tensor) -> SparseRows:
        """Return the input of the matrix, sparse."""
        found: SparseRows = self.encoder(tokens, mask)
        return found


class NearestNeighbours(PooledClassifier):
    """Label logits of texts from the `neighbours` texts of train with the most similar pooled states, by cosine.

    Each votes for its label; of K votes a label with v has the probability (v + 1) / (K + L).

    Attributes:
        vectors: the states of the texts of train, of length 1, (N, D).
        labels: theirs, (N,).
    """

    vectors: Tensor
    labels: Tensor

    def __init__(self, encoder: nn.Module, n_labels: int, pooling: str, neighbours: int, texts: int) -> None:
        super().__init__(encoder, n_labels, 0.0, pooling)
        del self.head
        self.n_labels, self.neighbours = n_labels, neighbours
        self.register_buffer("vectors", torch.zeros(texts, self.width))
        self.register_buffer("labels", torch.zeros(texts, dtype=torch.int64))

    def logits(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """See `PooledClassifier.forward`."""
        similar = normalize(self.features(tokens, mask).float(), dim=1) @ self.vectors.t()  # (B, N)
        nearest = similar.topk(self.neighbours, dim=1).indices  # (B, K)
        votes = similar.new_zeros(tokens.shape[0], self.n_labels)
        return (votes.scatter_add(1, self.labels[nearest], torch.ones_like(nearest, dtype=votes.dtype)) + 1).log()


class RewardModel(nn.Module):
    """The reward of texts: a causal network, the hidden state of the last token, one row; zero at first.

    Args:
        encoder: a `CausalModel`.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(cast(Any, encoder).shape.d_model, 1, bias=False)  # a bias would cancel in each pair
        nn.init.zeros_(self.head.weight)

    @property
    def context(self) -> int:
        """The longest text, in tokens."""
        return int(cast(Any, self.encoder).context)

    def forward(self, tokens: Tensor, last: Tensor) -> Tensor:
        """Return rewards (B,) of token ids (B, T), padded at the end, and the place of each text's last token (B,)."""
        hidden = cast(Any, self.encoder).hidden(tokens)  # (B, T, D)
        ends = hidden[torch.arange(len(last), device=hidden.device), last]  # (B, D)
        return self.head(ends)[:, 0].float()
