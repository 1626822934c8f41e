"""The residual block: a mixer, then a feed-forward layer, each with a norm. Shape letters: B batch, T time, D width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from lexmill.models.common.dropout import add_dropped
from lexmill.models.common.mixer import Mixer


class Block(nn.Module):
    """Each sub-layer f gives `x + drop(f(norm(x)))` or, in post-norm, `norm(x + drop(f(x)))`.

    Args:
        mixer: a `Mixer`; stored models name it `attention`.
        norm: makes a norm.
        dropout: on both branches.
    """

    def __init__(
        self, mixer: nn.Module, feed_forward: nn.Module, norm: Callable[[], nn.Module], dropout: float, pre: bool = True
    ) -> None:
        super().__init__()
        self.pre, self.dropout = pre, dropout
        self.attention_norm = norm()
        self.attention = mixer
        self.feed_forward_norm = norm()
        self.feed_forward = feed_forward

    @property
    def mixer(self) -> Mixer:
        """The layer that mixes positions."""
        return self.attention  # type: ignore[return-value]

    def forward(self, hidden: Tensor, shared: Any, state: Any) -> Tensor:
        """(B, T, D) -> (B, T, D); `shared` and `state` are the mixer's."""
        if self.pre:
            hidden = self._add(hidden, self.attention(self.attention_norm(hidden), shared, state))
            return self._add(hidden, self.feed_forward(self.feed_forward_norm(hidden)))
        hidden = self.attention_norm(self._add(hidden, self.attention(hidden, shared, state)))
        out: Tensor = self.feed_forward_norm(self._add(hidden, self.feed_forward(hidden)))
        return out

    def _add(self, hidden: Tensor, update: Tensor) -> Tensor:
        return add_dropped(hidden, update, self.dropout, self.training)

    def activation_bytes(self, low: int, mask: int, share: float) -> float:
        """Return the bytes per token that autograd keeps for the backward pass.

        Args:
            low: bytes of a number in a matrix product.
            mask: bytes of a number in a dropout mask.
            share: of the sub-layers on one device, 1 without tensor parallelism.
        """
        attention: Any = self.attention
        feed_forward: Any = self.feed_forward
        inner = attention.activation_bytes(low) + feed_forward.activation_bytes(low)
        # Each norm keeps its input, its rounded output and one statistic, or two where it has a mean.
        statistics = 2 * (8 if isinstance(self.attention_norm, nn.LayerNorm) else 4)
        return (8 + 2 * low + (2 * mask if self.dropout else 0)) * self._width + statistics + share * inner

    def gradient_bytes(self, low: int) -> int:
        """Return the bytes per token of temporary gradients inside the block, as measured on a CPU."""
        return (16 if low == 4 else 24) * self._width

    @property
    def _width(self) -> int:
        weight: Any = self.attention_norm.weight
        return int(weight.numel())


class SandwichBlock(Block):
    """Each sub-layer f gives `x + drop(norm(f(norm(x))))` (Ding et al. 2021): a norm before it and one after it."""

    def __init__(
        self, mixer: nn.Module, feed_forward: nn.Module, norm: Callable[[], nn.Module], dropout: float
    ) -> None:
        super().__init__(mixer, feed_forward, norm, dropout)
        self.attention_end = norm()
        self.feed_forward_end = norm()

    def forward(self, hidden: Tensor, shared: Any, state: Any) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        hidden = self._add(hidden, self.attention_end(self.attention(self.attention_norm(hidden), shared, state)))
        return self._add(hidden, self.feed_forward_end(self.feed_forward(self.feed_forward_norm(hidden))))

    def activation_bytes(self, low: int, mask: int, share: float) -> float:
        """Return the same as `Block`, and what two more norms keep."""
        statistics = 2 * (8 if isinstance(self.attention_norm, nn.LayerNorm) else 4)
        return super().activation_bytes(low, mask, share) + (8 + 2 * low) * self._width + statistics
