"""The encoder-decoder Transformer (Vaswani et al. 2017): one embedding for source, target and output.

ReLU, sinusoidal positions, dropout on embeddings and residuals, layer norm before or after each sub-layer. A target
starts with the begin token and ends with the end token; a source ends with the end token. Cost of a training step:
`Transformer.training_flops`; memory O(tokens * (D * layers + D_ffn)).

Shape letters: B rows, S source length, T target length, D model width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import key_mask
from lexmill.models.common.dropout import Dropout
from lexmill.models.transformer.cache import TransformerCache
from lexmill.models.transformer.layers import DecoderLayer, EncoderLayer, sinusoids
from lexmill.models.transformer.shape import Shape


class Transformer(nn.Module):
    """Maps source sentences to target sentences.

    Args:
        shape: the sizes.
        vocab_size: entries of the joint vocabulary.
    """

    positions: Tensor

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape, self.vocab_size = shape, vocab_size
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.dropout = Dropout(shape.dropout)
        self.encoder = nn.ModuleList([EncoderLayer(shape) for _ in range(shape.encoder_layers)])
        self.decoder = nn.ModuleList([DecoderLayer(shape) for _ in range(shape.decoder_layers)])
        pre = shape.norm == "pre"  # in post-norm every layer already ends with a norm
        self.encoder_norm = nn.LayerNorm(shape.d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(shape.d_model) if pre else nn.Identity()
        self.register_buffer("positions", sinusoids(shape.max_positions, shape.d_model), persistent=False)

    @property
    def max_positions(self) -> int:
        """The longest source, end token included, and the longest target, begin token included."""
        return self.shape.max_positions

    def _embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """(B, T) int64 -> (B, T, D), for positions from `start`."""
        end = start + tokens.size(1)
        if end > self.max_positions:
            raise ValueError(f"{end} positions, but the model has {self.max_positions} (max_positions)")
        scale = math.sqrt(self.shape.d_model)
        hidden = torch.add(self.positions[start:end], self.embedding(tokens), alpha=scale)
        out: Tensor = self.dropout(hidden)
        return out

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """(B, S) int64 and bool (true: a token, false: padding) -> memory (B, S, D)."""
        if source.shape != source_mask.shape:
            raise ValueError(f"source {tuple(source.shape)} and source_mask {tuple(source_mask.shape)} differ")
        mask = key_mask(source_mask)
        hidden = self._embed(source)
        for layer in self.encoder:
            hidden = layer(hidden, mask)
        out: Tensor = self.encoder_norm(hidden)
        return out

    def new_cache(self, memory: Tensor, source_mask: Tensor) -> TransformerCache:
        """Return an empty cache for decoding from these sources; computes their keys and values once."""
        layers = [cast(DecoderLayer, layer) for layer in self.decoder]
        return TransformerCache([layer.cross.project(memory) for layer in layers], key_mask(source_mask))

    def decode_hidden(
        self, target_in: Tensor, memory: Tensor, source_mask: Tensor, cache: TransformerCache | None = None
    ) -> Tensor:
        """`decode` before the output projection: (B, T, D)."""
        new = self.new_cache(memory, source_mask) if cache is None else cache
        if target_in.size(0) % new.source[0][0].size(0):
            raise ValueError(f"{target_in.size(0)} targets are no multiple of {new.source[0][0].size(0)} sources")
        hidden = self._embed(target_in, new.length)
        for layer, source, own in zip(self.decoder, new.source, new.layers, strict=True):
            hidden = layer(hidden, source, new.mask, own if cache is not None else None)
        out: Tensor = self.decoder_norm(hidden)
        return out

    def decode(
        self, target_in: Tensor, memory: Tensor, source_mask: Tensor, cache: TransformerCache | None = None
    ) -> Tensor:
        """Return the logits (B, T, V) of the token after each of `target_in` (B, T).

        With a cache, `target_in` holds only the new positions, and the source is the one the cache was made for.
        B may be n times the memory's rows: n consecutive rows then share a source.
        """
        return self.project(self.decode_hidden(target_in, memory, source_mask, cache))

    def project(self, hidden: Tensor) -> Tensor:
        """(..., D) -> logits (..., V), by the embedding matrix."""
        return nn.functional.linear(hidden, self.embedding.weight)

    def hidden(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """`forward` before the output projection, (B, T, D), for a loss that projects only at targets."""
        return self.decode_hidden(target_in, self.encode(source, source_mask), source_mask)

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Source (B, S) with its mask and shifted target (B, T) -> logits (B, T, V)."""
        return self.project(self.hidden(source, source_mask, target_in))

    def count_parameters(self) -> int:
        """Return the number of trained parameters, the shared embedding counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def training_flops(self, source_tokens: int, target_tokens: int) -> int:
        """Return the FLOPs of the matrix products forward and backward, without attention's scores and sums."""
        shape = self.shape
        square, wide = shape.d_model**2, 2 * shape.d_model * shape.d_ffn
        source = shape.encoder_layers * (4 * square + wide) + shape.decoder_layers * 2 * square
        target = shape.decoder_layers * (6 * square + wide) + shape.d_model * self.vocab_size
        return 6 * (source_tokens * source + target_tokens * target)
