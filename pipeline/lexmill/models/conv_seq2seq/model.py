"""A convolutional encoder-decoder (Gehring et al. 2017): blocks of a convolution and a gated linear unit.

A block maps the vectors of K neighbouring tokens to a vector and a gate; their product is added to the block's input.
All sums of two are scaled by sqrt(1/2), which keeps their variance. The encoder's convolutions are centred on a token,
the decoder's end at it. Each block of the decoder attends: with g the target token's embedding, z_j the encoder's
output and e_j its embedding,

    a_j = softmax over j of (W c + g) . z_j,   c + V sqrt(m) sum of a_j (z_j + e_j),   m tokens in the source.

Positions are learned. Weights are not normalised, as the paper's are. Cost of a training step:
`ConvSeq2Seq.training_flops`, and 4 * T * S * E multiply-adds a block for attention; all positions at once.

Shape letters: B rows, S source length, T target length, D width of the blocks, E width of the embedding, K kernel.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import softmax_at
from lexmill.models.common.encoder_decoder import EncoderDecoder
from lexmill.models.conv_seq2seq.blocks import HALF, Block, DecoderBlock
from lexmill.models.conv_seq2seq.cache import ConvCache
from lexmill.models.conv_seq2seq.shape import Shape


class ConvSeq2Seq(EncoderDecoder):
    """Maps source sentences to target sentences.

    Args:
        shape: the sizes.
        vocab_size: entries of the joint vocabulary.
    """

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(vocab_size, shape.d_embedding, shape.dropout, shape.max_positions)
        self.shape = shape
        width, of_embedding = shape.d_model, shape.d_embedding
        self.source_positions, self.target_positions = (
            nn.Embedding(shape.max_positions, of_embedding) for _ in range(2)
        )
        self.encoder_in, self.decoder_in = (nn.Linear(of_embedding, width) for _ in range(2))
        self.encoder = nn.ModuleList(Block(shape) for _ in range(shape.encoder_layers))
        self.decoder = nn.ModuleList(DecoderBlock(shape) for _ in range(shape.decoder_layers))
        self.encoder_out, self.decoder_out = (nn.Linear(width, of_embedding) for _ in range(2))

    def _embed(self, tokens: Tensor, positions: nn.Embedding, start: int = 0) -> Tensor:
        """(B, T) -> (B, T, E), for positions from `start`."""
        both = self.embedding(tokens) + positions.weight[start : start + tokens.size(1)]
        out: Tensor = self.dropout(both)
        return out

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderDecoder`; the memory is the keys and the values, (B, S, 2 E)."""
        self.check_source(source, source_mask)
        real, side = source_mask[:, :, None], self.shape.kernel // 2
        embedded = self._embed(source, self.source_positions)
        hidden = self.encoder_in(embedded)
        for block in self.encoder:
            # Padding is as the end of the text: zeros.
            around = nn.functional.pad(hidden * real, (0, 0, side, side))
            hidden = HALF * (block(around) + hidden)
        keys = self.encoder_out(hidden)
        return torch.cat([keys, HALF * (keys + embedded)], dim=2)

    def new_cache(self, memory: Tensor, source_mask: Tensor) -> ConvCache:
        """See `EncoderDecoder`."""
        keys, values = memory.chunk(2, dim=2)
        sizes = source_mask.sum(dim=1).to(values.dtype)
        values = values * sizes.sqrt()[:, None, None]
        empty = memory.new_zeros(len(memory), self.shape.kernel - 1, self.shape.d_model)
        return ConvCache(keys, values, source_mask, [empty] * len(self.decoder))

    def decode_cached(self, target_in: Tensor, cache: ConvCache, *, growing: bool) -> Tensor:
        """See `EncoderDecoder`."""
        embedded = self._embed(target_in, self.target_positions, cache.length)
        hidden = self.decoder_in(embedded)
        times = len(target_in) // cache.sources
        for i, layer in enumerate(self.decoder):
            block, before = cast(DecoderBlock, layer), cache.seen[i]
            if len(before) < len(target_in):
                before = before.repeat_interleave(times, dim=0)
            seen = torch.cat([before, hidden], dim=1)  # (B, K - 1 + T, D)
            cache.seen[i] = seen[:, seen.size(1) - (self.shape.kernel - 1) :]
            hidden = HALF * (block.attended(block(seen), embedded, cache) + hidden)
        cache.length += target_in.size(1)
        out: Tensor = self.dropout(self.decoder_out(hidden))
        return out

    def alignment(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """See `EncoderDecoder`."""
        found: list[Tensor] = []
        last = cast(DecoderBlock, self.decoder[-1])
        handle = last.query.register_forward_pre_hook(lambda _, given: found.append(given[0]))
        try:
            keys = self.encode(source, source_mask).chunk(2, dim=2)[0]
            self(source, source_mask, target_in)
        finally:
            handle.remove()
        query = last.asked(found[0], self._embed(target_in, self.target_positions))
        return softmax_at(query @ keys.transpose(1, 2), source_mask[:, None])

    def training_flops(self, source_tokens: int, target_tokens: int) -> int:
        """See `EncoderDecoder`."""
        both = self.shape.d_embedding * self.shape.d_model
        block = 2 * self.shape.kernel * self.shape.d_model**2
        source = 2 * both + len(self.encoder) * block
        target = 2 * both + len(self.decoder) * (block + 2 * both) + self.embedding.weight.numel()
        return 6 * (source_tokens * source + target_tokens * target)
