"""The encoder-decoder Transformer (Vaswani et al. 2017), and its options.

ReLU, dropout on embeddings and residuals, layer norm before or after each sub-layer.

| option | source |
|---|---|
| tied: three_way, decoder | Press and Wolf 2017; Vaswani et al. 2017 |
| positions: sinusoidal, learned | Vaswani et al. 2017; Gehring et al. 2017 |
| positions: rotary, relative | Su et al. 2021; Raffel et al. 2020 |
| n_kv_head: 1, fewer than n_head | Shazeer 2019; Ainslie et al. 2023 |
| decoder_mixer: ssru, a row of linear attention | Kim et al. 2019; `common/rows` |

Positions that self-attention sees are the encoder's, and the decoder's where its mixer is attention; a recurrence needs
none. Cost of a training step: `Transformer.training_flops`; memory O(tokens * (D * layers + D_ffn)).

Shape letters: B rows, S source length, T target length, D model width, H heads, K head width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import key_mask
from lexmill.models.common.encoder_decoder import EncoderDecoder, linear_weights
from lexmill.models.common.position_bias import RelativeBias, distances
from lexmill.models.common.rotary import rotation
from lexmill.models.transformer.cache import TransformerCache
from lexmill.models.transformer.layers import DecoderLayer, EncoderLayer, sinusoids
from lexmill.models.transformer.shape import Shape


class Transformer(EncoderDecoder):
    """Maps source sentences to target sentences.

    Args:
        shape: the sizes.
        vocab_size: entries of the joint vocabulary.
    """

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(vocab_size, shape.d_model, shape.dropout, shape.max_positions, shape.tied)
        self.shape = shape
        relative = shape.positions == "relative"
        first = [RelativeBias(shape.n_head)] if relative and shape.decoder_mixer == "attention" else []
        self.encoder = nn.ModuleList([EncoderLayer(shape) for _ in range(shape.encoder_layers)])
        self.decoder = nn.ModuleList(
            [DecoderLayer(shape, first.pop() if first else None) for _ in range(shape.decoder_layers)]
        )
        pre = shape.norm == "pre"  # in post-norm every layer already ends with a norm
        self.encoder_norm = nn.LayerNorm(shape.d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(shape.d_model) if pre else nn.Identity()
        self.relative = RelativeBias(shape.n_head, both_sides=True) if relative else None  # the encoder's
        self.source_places = self.target_places = None
        if shape.positions == "learned":
            self.source_places, self.target_places = (
                nn.Embedding(shape.max_positions, shape.d_model) for _ in range(2)
            )
        table = sinusoids(shape.max_positions, shape.d_model) if shape.positions == "sinusoidal" else None
        self.register_buffer("positions", table, persistent=False)

    def _embed(self, tokens: Tensor, by: nn.Embedding, places: nn.Embedding | None, start: int = 0) -> Tensor:
        """(B, T) int64 -> (B, T, D), for positions from `start`."""
        table = cast("Tensor | None", self.positions) if places is None else places.weight
        scale, embedded = math.sqrt(self.shape.d_model), by(tokens)
        if table is None:
            hidden = scale * embedded
        else:
            hidden = torch.add(table[start : start + tokens.size(1)], embedded, alpha=scale)
        out: Tensor = self.dropout(hidden)
        return out

    def _seen(self, source_mask: Tensor) -> Any:
        """Return what the encoder's attention reads beside the hidden states, see `EncoderLayer`."""
        if self.shape.embedded_positions:
            return key_mask(source_mask)
        size, real = source_mask.size(1), source_mask[:, None, None]
        if self.relative is None:
            places = torch.arange(size, device=source_mask.device)
            return rotation(places, self.shape.d_model // self.shape.n_head, 10000.0), real
        return None, self.relative(distances(size, size, source_mask.device))[None].masked_fill(~real, -torch.inf)

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderDecoder`; the memory has the model's width."""
        self.check_source(source, source_mask)
        seen = self._seen(source_mask)
        hidden = self._embed(source, self.source_embedding or self.embedding, self.source_places)
        for layer in self.encoder:
            hidden = layer(hidden, seen)
        out: Tensor = self.encoder_norm(hidden)
        return out

    def new_cache(self, memory: Tensor, source_mask: Tensor) -> TransformerCache:
        """See `EncoderDecoder`: the sources' keys and values are computed once."""
        layers = [cast(DecoderLayer, layer) for layer in self.decoder]
        states = [cast(Any, layer.attention).new_state(16) for layer in layers]
        return TransformerCache([layer.cross.project(memory) for layer in layers], key_mask(source_mask), states)

    def decode_cached(self, target_in: Tensor, cache: TransformerCache, *, growing: bool) -> Tensor:
        """See `EncoderDecoder`."""
        shared = cast(Any, self.decoder[0]).attention.shared(target_in, cache.length, None)
        hidden = self._embed(target_in, self.embedding, self.target_places, cache.length)
        for layer, source, own in zip(self.decoder, cache.source, cache.layers, strict=True):
            hidden = layer(hidden, shared, own if growing else None, source, cache.mask)
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
        return cross.weights(*found[0], source_mask)

    def training_flops(self, source_tokens: int, target_tokens: int) -> int:
        """Return the FLOPs of the matrix products forward and backward, without attention's scores and sums."""
        of_source = sum(linear_weights(cast(DecoderLayer, layer).cross.key_value) for layer in self.decoder)
        source = linear_weights(self.encoder) + of_source
        target = linear_weights(self.decoder) - of_source + self.output_matrix.numel()
        return 6 * (source_tokens * source + target_tokens * target)
