"""The logits after one more token: the decoding step of a GPT, written out.

The same function as the model's `forward` over one position with a cache, of the same weights, without what a position
costs beside its arithmetic: the calls of some fifty modules, the views that a longer input needs, autograd. On a CPU
that is a third of a small model's step for one text. Only for weights that this process holds whole, without autograd,
and in eval mode.
Cost: 2 * parameters FLOPs a text; every weight is read once, and the keys and values of each text.

Shape letters: B texts, D width, H heads, K head width, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, scaled_dot_product_attention

from lexmill.models.common.attention import KeyValueCache

if TYPE_CHECKING:
    from lexmill.models.gpt.model import GPT, Block, Cache


def step(model: GPT, tokens: Tensor, cache: Cache) -> Tensor:
    """(B,) int64, the tokens at position `cache.length`, -> (B, V); the cache is brought up to date."""
    hidden = embedding(tokens, model.embedding.weight) + model.positions.weight[cache.length]  # (B, D)
    for block, layer in zip(model.blocks, cache.layers, strict=True):
        hidden = _block(cast("Block", block), hidden, layer)
    if isinstance(model.norm, nn.LayerNorm):
        hidden = _norm(model.norm, hidden)
    return hidden @ model.embedding.weight.t()


def _block(block: Block, hidden: Tensor, cache: KeyValueCache) -> Tensor:
    if block.pre:
        hidden = _attend(block.attention, _norm(block.attention_norm, hidden), cache).add_(hidden)
        return _feed(block.feed_forward, _norm(block.feed_forward_norm, hidden)).add_(hidden)
    hidden = _norm(block.attention_norm, _attend(block.attention, hidden, cache).add_(hidden))
    return _norm(block.feed_forward_norm, _feed(block.feed_forward, hidden).add_(hidden))


def _attend(attention: Any, hidden: Tensor, cache: KeyValueCache) -> Tensor:
    fused = _linear(attention.query_key_value, hidden).view(len(hidden), -1, 3, 1, attention.d_head)  # (B, H, 3, 1, K)
    query, keys, values = fused.unbind(2)
    out = scaled_dot_product_attention(query, *cache.append(keys, values))  # (B, H, 1, K)
    return _linear(attention.output, out.flatten(1))


def _feed(feed_forward: Any, hidden: Tensor) -> Tensor:
    return _linear(feed_forward.output, gelu(_linear(feed_forward.expand, hidden), approximate="tanh"))


def _linear(layer: nn.Linear, hidden: Tensor) -> Tensor:
    return torch.addmm(layer.bias, hidden, layer.weight.t())


def _norm(layer: nn.LayerNorm, hidden: Tensor) -> Tensor:
    return torch.layer_norm(hidden, layer.normalized_shape, layer.weight, layer.bias, layer.eps)
