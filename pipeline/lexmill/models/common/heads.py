"""Heads that turn a network's hidden states into a task's output.

Shape letters: B texts, T tokens, D width, L labels.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn


class Encoder(Protocol):
    """What a head needs of an encoder, besides being a module.

    Attributes:
        d_model: D.
        max_positions: the longest text, in tokens.
        init_std: the standard deviation of its initial weights, and of a head's.
    """

    @property
    def d_model(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def init_std(self) -> float: ...

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B, T) int64 and bool, true at real tokens -> (B, T, D).

        An encoder that takes part in tasks on pairs of texts has a third parameter, `segments` (B, T) int64.
        """


class PooledClassifier(nn.Module):
    """Label logits of texts: the encoder, the mean over real tokens, dropout, one matrix.

    The mean, not the first token: sentence encoders are trained that way, and a plain BERT loses nothing by it.

    Args:
        encoder: an `Encoder`.
        n_labels: L.
        dropout: on the pooled vector.
    """

    def __init__(self, encoder: nn.Module, n_labels: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self._encoder.d_model, n_labels)
        nn.init.normal_(self.head.weight, std=self._encoder.init_std)
        nn.init.zeros_(self.head.bias)

    @property
    def _encoder(self) -> Encoder:
        return cast(Encoder, self.encoder)

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return self._encoder.max_positions

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return logits (B, L) of token ids (B, T) and a mask (B, T), true at real tokens; raises like `features`."""
        logits: Tensor = self.head(self.dropout(self.features(tokens, mask)))
        return logits

    def features(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the input of the matrix: the mean (B, D) of the encoder's hidden states over the real tokens.

        Raises:
            ValueError: the shapes differ, or a text is longer than the encoder's positions.
        """
        if tokens.shape != mask.shape or tokens.ndim != 2:
            raise ValueError(f"tokens are {tuple(tokens.shape)}, mask is {tuple(mask.shape)}; both must be (B, T)")
        hidden = self._encoder.hidden(tokens, mask)  # (B, T, D)
        weights = mask.unsqueeze(-1).to(hidden.dtype)  # (B, T, 1)
        pooled: Tensor = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        return pooled


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
