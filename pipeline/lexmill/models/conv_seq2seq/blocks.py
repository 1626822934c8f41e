"""The blocks of a convolutional encoder-decoder.

Shape letters: B rows, T tokens, D width of the blocks, E width of the embedding, K kernel.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.functional import glu

from lexmill.models.common.attention import attend
from lexmill.models.common.convolutions import Convolution1d
from lexmill.models.common.dropout import Dropout
from lexmill.models.conv_seq2seq.cache import ConvCache
from lexmill.models.conv_seq2seq.shape import Shape

HALF = math.sqrt(0.5)


class Block(nn.Module):
    """A convolution to twice the width, dropout before it, and the gate after it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.dropout = Dropout(shape.dropout)
        self.convolution = Convolution1d(shape.d_model, 2 * shape.d_model, shape.kernel)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T + K - 1, D) -> (B, T, D)."""
        return glu(self.convolution(self.dropout(hidden).transpose(1, 2)).transpose(1, 2), dim=2)


class DecoderBlock(Block):
    """A block with attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.query = nn.Linear(shape.d_model, shape.d_embedding)
        self.output = nn.Linear(shape.d_embedding, shape.d_model)

    def asked(self, found: Tensor, target: Tensor) -> Tensor:
        """Return what is compared with the source's keys, (B, T, E)."""
        query: Tensor = HALF * (self.query(found) + target)
        return query

    def attended(self, found: Tensor, target: Tensor, cache: ConvCache) -> Tensor:
        """Add what attention finds to a block's result (B, T, D), for the target's embeddings (B, T, E)."""
        query = self.asked(found, target)
        rows, time, width = query.shape
        joined = query.view(cache.sources, 1, -1, width) * math.sqrt(width)  # attend divides by it
        keys, values = cache.keys[:, None], cache.values[:, None]
        context = attend(joined, keys, values, mask=cache.real[:, None, None], causal=False)
        context = context.view(rows, time, width)
        return HALF * (found + self.output(context))
