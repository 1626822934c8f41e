"""The positions and layers of the encoder-decoder Transformer (Vaswani et al. 2017).

Shape letters: B rows, S source length, T target length, D model width, H heads, K head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import CrossAttention, KeyValueCache, SelfAttention
from lexmill.models.common.dropout import add_dropped
from lexmill.models.common.feed_forward import FeedForward
from lexmill.models.transformer.shape import Shape


def sinusoids(positions: int, d_model: int) -> Tensor:
    """Return sines and cosines of falling frequency, interleaved (section 3.5): (positions, D)."""
    if torch.empty(0).is_meta:
        return torch.empty(positions, d_model)  # without values: torch would import its compiler for them
    place = torch.arange(positions, dtype=torch.float64)[:, None]
    rate = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    table = torch.zeros(positions, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(place * rate)
    table[:, 1::2] = torch.cos(place * rate)[:, : d_model // 2]
    return table.float()


class Residual(nn.Module):
    """The residual around a sub-layer f: `x + drop(f(norm(x)))` in pre-norm, `norm(x + drop(f(x)))` in post-norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.d_model)
        self.pre = shape.norm == "pre"
        self.rate = shape.dropout

    def enter(self, hidden: Tensor) -> Tensor:
        """Return the sub-layer's input: (B, T, D) -> (B, T, D)."""
        return self.norm(hidden) if self.pre else hidden

    def leave(self, hidden: Tensor, update: Tensor) -> Tensor:
        """Return the stream after the sub-layer's `update`: (B, T, D)."""
        total = add_dropped(hidden, update, self.rate, self.training)
        return total if self.pre else self.norm(total)


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = SelfAttention(shape.d_model, shape.n_head)
        self.feed_forward = FeedForward(shape.d_model, shape.d_ffn, "relu")
        self.around_attention, self.around_feed_forward = Residual(shape), Residual(shape)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """(B, S, D) -> (B, S, D); mask (B, 1, 1, S), true at tokens."""
        around = self.around_attention
        hidden = around.leave(hidden, self.attention(around.enter(hidden), mask=mask))
        around = self.around_feed_forward
        return around.leave(hidden, self.feed_forward(around.enter(hidden)))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the source, then a feed-forward layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = SelfAttention(shape.d_model, shape.n_head)
        self.cross = CrossAttention(shape.d_model, shape.n_head)
        self.feed_forward = FeedForward(shape.d_model, shape.d_ffn, "relu")
        self.around_attention, self.around_cross = Residual(shape), Residual(shape)
        self.around_feed_forward = Residual(shape)

    def forward(
        self, hidden: Tensor, source: tuple[Tensor, Tensor], mask: Tensor | None, cache: KeyValueCache | None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D), attending to the keys and values (B / n, H, S, K) of the sources."""
        # Padding is at a target's end, where causal attention hides it from every token: no mask needed.
        around = self.around_attention
        hidden = around.leave(hidden, self.attention(around.enter(hidden), causal=True, cache=cache))
        # The n rows of one source attend as one long row, so the source is not copied.
        around, (rows, time, width) = self.around_cross, hidden.shape
        query = around.enter(hidden).view(source[0].size(0), -1, width)  # (B / n, n * T, D)
        found = self.cross(query, None, mask=mask, projected=source).view(rows, time, width)
        hidden = around.leave(hidden, found)
        around = self.around_feed_forward
        return around.leave(hidden, self.feed_forward(around.enter(hidden)))
