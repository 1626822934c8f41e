"""The encoder-decoder Transformer (Vaswani et al. 2017): one embedding for source, target and output.

ReLU, sinusoidal positions, dropout on embeddings and residuals, layer norm before or after each sub-layer. Cost of a
training step: `Transformer.training_flops`; memory O(tokens * (D * layers + D_ffn)).

Shape letters: B rows, S source length, T target length, D model width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import key_mask, softmax_at, split_heads
from lexmill.models.common.encoder_decoder import EncoderDecoder
from lexmill.models.transformer.cache import TransformerCache
from lexmill.models.transformer.layers import DecoderLayer, EncoderLayer, sinusoids
from lexmill.models.transformer.shape import Shape


class Transformer(EncoderDecoder):
    """Maps source sentences to target sentences.

    Args:
        shape: the sizes.
        vocab_size: entries of the joint vocabulary.
    """

    positions: Tensor

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(vocab_size, shape.d_model, shape.dropout, shape.max_positions)
        self.shape = shape
        self.encoder = nn.ModuleList([EncoderLayer(shape) for _ in range(shape.encoder_layers)])
        self.decoder = nn.ModuleList([DecoderLayer(shape) for _ in range(shape.decoder_layers)])
        pre = shape.norm == "pre"  # in post-norm every layer already ends with a norm
        self.encoder_norm = nn.LayerNorm(shape.d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(shape.d_model) if pre else nn.Identity()
        self.register_buffer("positions", sinusoids(shape.max_positions, shape.d_model), persistent=False)

    def _embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """(B, T) int64 -> (B, T, D), for positions from `start`."""
        positions = self.positions[start : start + tokens.size(1)]
        hidden = torch.add(positions, self.embedding(tokens), alpha=math.sqrt(self.shape.d_model))
        out: Tensor = self.dropout(hidden)
        return out

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderDecoder`; the memory has the model's width."""
        self.check_source(source, source_mask)
        mask = key_mask(source_mask)
        hidden = self._embed(source)
        for layer in self.encoder:
            hidden = layer(hidden, mask)
        out: Tensor = self.encoder_norm(hidden)
        return out

    def new_cache(self, memory: Tensor, source_mask: Tensor) -> TransformerCache:
        """See `EncoderDecoder`: the sources' keys and values are computed once."""
        layers = [cast(DecoderLayer, layer) for layer in self.decoder]
        return TransformerCache([layer.cross.project(memory) for layer in layers], key_mask(source_mask))

    def decode_cached(self, target_in: Tensor, cache: TransformerCache, *, growing: bool) -> Tensor:
        """See `EncoderDecoder`."""
        hidden = self._embed(target_in, cache.length)
        for layer, source, own in zip(self.decoder, cache.source, cache.layers, strict=True):
            hidden = layer(hidden, source, cache.mask, own if growing else None)
        out: Tensor = self.decoder_norm(hidden)
        return out

    def alignment(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """See `EncoderDecoder`: the mean over the heads of the decoder's last layer."""
        found: list[tuple[Tensor, Tensor]] = []
        cross = cast(DecoderLayer, self.decoder[-1]).cross
        handle = cross.register_forward_hook(
            lambda _, given, named, __: found.append((given[0], named["projected"][0])), with_kwargs=True
        )
        try:
            self(source, source_mask, target_in)
        finally:
            handle.remove()
        hidden, keys = found[0]
        query = split_heads(cross.query(hidden), cross.n_head)  # (B, H, T, K)
        scores = query @ keys.transpose(2, 3) * keys.size(3) ** -0.5
        return softmax_at(scores, source_mask[:, None, None]).mean(dim=1)

    def training_flops(self, source_tokens: int, target_tokens: int) -> int:
        """Return the FLOPs of the matrix products forward and backward, without attention's scores and sums."""
        shape = self.shape
        square, wide = shape.d_model**2, 2 * shape.d_model * shape.d_ffn
        source = shape.encoder_layers * (4 * square + wide) + shape.decoder_layers * 2 * square
        target = shape.decoder_layers * (6 * square + wide) + shape.d_model * self.vocab_size
        return 6 * (source_tokens * source + target_tokens * target)
