"""Language models of the linear-attention family: seventeen recurrences over one mechanism, alone or mixed by layers.

Each block is a mixer and a SwiGLU feed-forward layer, each behind a root-mean-square norm. Training goes through a
chunk of tokens at a time, decoding through one; the state has one size for a text of any length.

Cost: as of `CausalModel`, plus what the mixers' states take, in proportion to the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lexmill.models.common import reversible
from lexmill.models.common.block import Block
from lexmill.models.common.causal import CausalModel
from lexmill.models.common.feed_forward import GatedFeedForward
from lexmill.models.common.init import GPT2
from lexmill.models.common.norms import RMSNorm
from lexmill.models.common.reversible import ReversibleBlock
from lexmill.models.common.rows import ROWS
from lexmill.models.linear_attention.shape import Shape


class LinearAttention(CausalModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        layers = iter(range(shape.n_layer))

        def norm() -> RMSNorm:
            return RMSNorm(shape.d_model)

        def block() -> Block:
            mixer = ROWS[shape.mixer(next(layers))](shape)
            feed_forward = GatedFeedForward(shape.d_model, shape.ffn_width)
            if shape.reversible:
                return ReversibleBlock(mixer, feed_forward, norm)
            return Block(mixer, feed_forward, norm, shape.dropout)

        super().__init__(
            shape,
            vocab_size,
            block=block,
            norm=norm(),
            recipe=GPT2(),
            tied=shape.tie_embeddings,
        )

    def through(self, blocks: list[Any], hidden: Tensor, shared: Any, states: Sequence[Any]) -> Tensor:
        """Return the output of the last block, (B, T, D)."""
        if self.shape.reversible:
            return reversible.through(blocks, hidden, shared, states)
        return super().through(blocks, hidden, shared, states)
