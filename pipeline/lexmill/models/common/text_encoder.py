"""What every encoder of texts gives the heads on it, besides its hidden states.

Shape letters: B texts, T tokens, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

STD = 0.02  # of first weights, as BERT's


class TextEncoder(nn.Module, ABC):
    """A network that computes hidden states of texts; a family defines `hidden`.

    Attributes:
        shape: of the family; here `d_model` and `max_positions` are read.
        unpads: whether padding costs nothing on a CPU, so that a batch needs no cut into parts of like length.
    """

    shape: Any
    unpads = False

    @property
    def d_model(self) -> int:
        """D."""
        return int(self.shape.d_model)

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return int(self.shape.max_positions)

    @property
    def init_std(self) -> float:
        """The standard deviation of a head's initial weights."""
        return STD

    @abstractmethod
    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, which come first, to (B, T, D).

        Args:
            tokens, mask: the texts.
            segments: of pairs, the text that each token is of, (B, T) int64; used by encoders with `n_segments`.

        Raises:
            ValueError: a text is longer than the positions.
        """

    def check(self, tokens: Tensor) -> None:
        """Raise `ValueError` for texts longer than the positions."""
        if tokens.shape[1] > self.max_positions:
            raise ValueError(f"{tokens.shape[1]} tokens, but the encoder has {self.max_positions} positions")

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """See `hidden`."""
        return self.hidden(tokens, mask)
