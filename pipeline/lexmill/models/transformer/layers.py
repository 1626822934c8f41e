"""The positions and layers of the encoder-decoder Transformer (Vaswani et al. 2017).

Shape letters: B rows, S source length, T target length, D model width, H heads, K head width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import SelfAttention
from lexmill.models.common.causal_attention import CausalSelfAttention
from lexmill.models.common.decoder_attention import DecoderAttention
from lexmill.models.common.dropout import add_dropped
from lexmill.models.common.feed_forward import FeedForward
from lexmill.models.common.grouped_attention import GroupedAttention
from lexmill.models.common.position_bias import RelativeBias
from lexmill.models.common.rows import ROWS
from lexmill.models.common.ssru import SSRU
from lexmill.models.transformer.attention import GroupedCrossAttention
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
        width, heads = shape.d_model, shape.n_head
        self.attention: nn.Module
        if shape.embedded_positions:
            self.attention = SelfAttention(width, heads)
        else:
            self.attention = GroupedAttention(width, heads, heads, width // heads, bias=True)
        self.feed_forward = FeedForward(shape.d_model, shape.d_ffn, "relu")
        self.around_attention, self.around_feed_forward = Residual(shape), Residual(shape)

    def forward(self, hidden: Tensor, shared: Any) -> Tensor:
        """(B, S, D) -> (B, S, D).

        Args:
            shared: what the attention reads beside them: a mask (B, 1, 1, S), true at tokens, or positions and a mask.
        """
        around = self.around_attention
        hidden = around.leave(hidden, self.attention(around.enter(hidden), shared))
        around = self.around_feed_forward
        return around.leave(hidden, self.feed_forward(around.enter(hidden)))


def target_mixer(shape: Shape, relative: RelativeBias | None) -> nn.Module:
    """Return what mixes the target's positions, a `Mixer`.

    Args:
        relative: the bias by distance, for the first layer.
    """
    if shape.decoder_mixer == "ssru":
        return SSRU(shape.d_model)
    if shape.decoder_mixer != "attention":
        return ROWS[shape.decoder_mixer](shape.rows)
    if shape.embedded_positions and shape.kv_heads == shape.n_head:
        return CausalSelfAttention(shape.d_model, shape.n_head)
    heads = (shape.n_head, shape.kv_heads, shape.d_model // shape.n_head)
    return DecoderAttention(shape.d_model, *heads, positions=shape.positions, bias=True, relative=relative)


class DecoderLayer(nn.Module):
    """A mixer of the target's positions, attention over the source, then a feed-forward layer.

    Args:
        relative: see `target_mixer`.
    """

    def __init__(self, shape: Shape, relative: RelativeBias | None = None) -> None:
        super().__init__()
        self.attention = target_mixer(shape, relative)
        self.cross = GroupedCrossAttention(shape.d_model, shape.n_head, shape.kv_heads)
        self.feed_forward = FeedForward(shape.d_model, shape.d_ffn, "relu")
        self.around_attention, self.around_cross = Residual(shape), Residual(shape)
        self.around_feed_forward = Residual(shape)

    def forward(
        self, hidden: Tensor, shared: Any, state: Any, source: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D), attending to the keys and values (B / n, G, S, K) of the sources.

        Args:
            shared, state: the mixer's.
        """
        # Padding is at a target's end, where a causal mixer hides it from every token: no mask needed.
        around = self.around_attention
        hidden = around.leave(hidden, self.attention(around.enter(hidden), shared, state))
        # The n rows of one source attend as one long row, so the source is not copied.
        around, (rows, time, width) = self.around_cross, hidden.shape
        query = around.enter(hidden).view(source[0].size(0), -1, width)  # (B / n, n * T, D)
        found = self.cross(query, None, mask=mask, projected=source).view(rows, time, width)
        hidden = around.leave(hidden, found)
        around = self.around_feed_forward
        return around.leave(hidden, self.feed_forward(around.enter(hidden)))
