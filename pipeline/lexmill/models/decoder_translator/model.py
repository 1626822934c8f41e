"""Sequence to sequence without an encoder: a causal language model of `source </s> <s> target </s>` (Wang et al. 2021).

The blocks are those of the causal skeleton with Llama's parts: RMSNorm before each sub-layer, rotary positions, SwiGLU,
grouped queries, no biases. A target token sees the whole source and the target up to itself; a source token sees the
source up to itself or, in a prefix language model (Raffel et al. 2020), all of it. Positions go on from the source's
last token, so padding changes nothing. The loss is on the target alone.

A source is read once: its memory is the keys and values of all layers, which the target's tokens attend to.
Cost of a training step: `DecoderTranslator.training_flops`; attention's scores are O((S + T)^2).

Shape letters: B rows, S source length, T target length, D model width, G key and value heads, K head width, L layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lexmill.models.attention_weights import attention_weights
from lexmill.models.common.attention import split_heads
from lexmill.models.common.block import Block
from lexmill.models.common.encoder_decoder import EncoderDecoder, linear_weights
from lexmill.models.common.feed_forward import GatedFeedForward
from lexmill.models.common.grouped_attention import GroupedAttention
from lexmill.models.common.norms import RMSNorm
from lexmill.models.common.rotary import Rotation, rotate, rotation
from lexmill.models.decoder_translator.cache import Held, TranslatorCache
from lexmill.models.decoder_translator.shape import Shape


class DecoderTranslator(EncoderDecoder):
    """Maps source sentences to target sentences.

    Args:
        shape: the sizes.
        vocab_size: entries of the joint vocabulary.
    """

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(vocab_size, shape.d_model, shape.dropout, shape.max_positions)
        self.shape = shape

        def norm() -> RMSNorm:
            return RMSNorm(shape.d_model)

        def block() -> Block:
            heads = shape.n_head, shape.kv_heads, shape.head_width
            attention = GroupedAttention(shape.d_model, *heads, theta=shape.rope_theta)
            return Block(attention, GatedFeedForward(shape.d_model, shape.d_ffn), norm, shape.dropout)

        self.blocks = nn.ModuleList(block() for _ in range(shape.n_layer))
        self.norm = norm()

    def _rotation(self, places: Tensor) -> Rotation:
        return rotation(places, self.shape.head_width, self.shape.rope_theta)

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderDecoder`; the memory is each layer's keys and values, (B, S, 2 * L * G * K)."""
        self.check_source(source, source_mask)
        places = torch.arange(source.size(1), device=source.device)
        by, seen = self._rotation(places), source_mask[:, None, None]
        if not self.shape.prefix:
            seen = seen & (places[:, None] >= places)
        blocks: list[Any] = list(self.blocks)
        hidden, held = self.dropout(self.embedding(source)), [Held() for _ in blocks]
        for block, own in zip(blocks[:-1], held[:-1], strict=True):
            hidden = block(hidden, (by, seen), own)
        last, normed = blocks[-1].attention, blocks[-1].attention_norm(hidden)  # nothing reads its output
        keys, values = (one(normed).unflatten(-1, (self.shape.kv_heads, -1)) for one in (last.key, last.value))
        held[-1].append(rotate(keys, by).transpose(1, 2), values.transpose(1, 2))
        parts = [part for own in held for part in (own.keys, own.values) if part is not None]
        return torch.cat([part.transpose(1, 2).flatten(2) for part in parts], dim=2)

    def new_cache(self, memory: Tensor, source_mask: Tensor) -> TranslatorCache:
        """See `EncoderDecoder`."""
        heads = self.shape.kv_heads
        parts = [split_heads(part, heads) for part in memory.split(heads * self.shape.head_width, dim=2)]
        return TranslatorCache([Held(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)], source_mask)

    def decode_cached(self, target_in: Tensor, cache: TranslatorCache, *, growing: bool) -> Tensor:
        """See `EncoderDecoder`."""
        cache.spread(len(target_in))
        time = target_in.size(1)
        places = torch.arange(cache.length, cache.length + time, device=target_in.device)
        shared = self._rotation(cache.real.sum(dim=1, keepdim=True) + places), cache.seen(time)
        hidden = self.dropout(self.embedding(target_in))
        for block, own in zip(self.blocks, cache.layers, strict=True):
            hidden = block(hidden, shared, own)
        cache.length += time
        out: Tensor = self.norm(hidden)
        return out

    def alignment(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """See `EncoderDecoder`: the mean over the last block's heads, as shares of what the source gets."""
        layers = attention_weights(lambda read, mask: self(read, mask, target_in), source, source_mask)
        weights = layers[-1].mean(dim=1)[:, :, : source.size(1)]
        return weights / weights.sum(dim=2, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)

    def training_flops(self, source_tokens: int, target_tokens: int) -> int:
        """See `EncoderDecoder`."""
        last, target = self.blocks[-1], linear_weights(self.blocks)
        kept = sum(linear_weights(last.get_submodule(f"attention.{name}")) for name in ("key", "value"))
        source = target - linear_weights(last) + kept
        return 6 * (source_tokens * source + target_tokens * (target + self.output_matrix.numel()))
