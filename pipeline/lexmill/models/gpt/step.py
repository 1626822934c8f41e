"""The logits after one more token: the decoding step of a GPT, written out.

The same function as the model's `forward` over one position with a cache, without the overhead of some fifty module
calls, of views that a longer input needs and of autograd: on a CPU a third of a small model's step for one text. Only
in eval mode, and for weights that this process holds whole.
Cost: 2 * parameters FLOPs a text; every weight is read once, and the keys and values of each text.

Shape letters: B texts, D width, H heads, K head width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, scaled_dot_product_attention

from lexmill.models.common.attention import KeyValueCache
from lexmill.models.common.causal import Cache, CausalModel
from lexmill.models.common.feed_forward import ACTIVATIONS

Matrix = tuple[Tensor, Tensor]  # weight, transposed to (in, out), and bias
Norm = tuple[tuple[int, ...], Tensor, Tensor, float]  # the arguments of torch.layer_norm


class Weights(NamedTuple):
    """Views of a block's weights, looked up once: a module's attributes cost a microsecond each."""

    pre: bool
    d_head: int
    attention_norm: Norm
    query_key_value: Matrix
    output: Matrix
    feed_forward_norm: Norm
    expand: Matrix
    activation: Callable[[Tensor], Tensor]
    contract: Matrix


class StepCache(Cache):
    """Keys and values of all layers, and the views of their weights."""

    weights: list[Weights] | None = None


def step(model: CausalModel, tokens: Tensor, cache: StepCache) -> Tensor:
    """Map the tokens (B,) int64 at position `cache.length` to logits (B, V); updates the cache."""
    if cache.weights is None:
        cache.weights = [_weights(block) for block in model.blocks]
    assert model.positions is not None
    matrix = model.embedding.weight
    hidden = embedding(tokens, matrix) + model.positions.weight[cache.length]  # (B, D)
    for weights, layer in zip(cache.weights, cast("list[KeyValueCache]", cache.layers), strict=True):
        hidden = _block(weights, hidden, layer)
    if isinstance(model.norm, nn.LayerNorm):
        hidden = torch.layer_norm(hidden, *_norm(model.norm))
    return hidden @ matrix.t()


def _block(w: Weights, hidden: Tensor, cache: KeyValueCache) -> Tensor:
    if w.pre:
        hidden = _attend(w, torch.layer_norm(hidden, *w.attention_norm), cache).add_(hidden)
        return _feed(w, torch.layer_norm(hidden, *w.feed_forward_norm)).add_(hidden)
    hidden = torch.layer_norm(_attend(w, hidden, cache).add_(hidden), *w.attention_norm)
    return torch.layer_norm(_feed(w, hidden).add_(hidden), *w.feed_forward_norm)


def _attend(w: Weights, hidden: Tensor, cache: KeyValueCache) -> Tensor:
    weight, bias = w.query_key_value
    fused = torch.addmm(bias, hidden, weight).view(len(hidden), -1, 3, 1, w.d_head)  # (B, H, 3, 1, K)
    query, keys, values = fused.unbind(2)
    out = scaled_dot_product_attention(query, *cache.append(keys, values))  # (B, H, 1, K)
    weight, bias = w.output
    return torch.addmm(bias, out.flatten(1), weight)


def _feed(w: Weights, hidden: Tensor) -> Tensor:
    weight, bias = w.expand
    inner = w.activation(torch.addmm(bias, hidden, weight))
    weight, bias = w.contract
    return torch.addmm(bias, inner, weight)


def _weights(block: Any) -> Weights:
    attention, feed_forward = block.attention, block.feed_forward
    return Weights(
        block.pre,
        attention.d_head,
        _norm(block.attention_norm),
        _matrix(attention.query_key_value),
        _matrix(attention.output),
        _norm(block.feed_forward_norm),
        _matrix(feed_forward.expand),
        ACTIVATIONS[feed_forward.activation],
        _matrix(feed_forward.output),
    )


def _matrix(layer: nn.Linear) -> Matrix:
    return layer.weight.t(), layer.bias


def _norm(layer: nn.LayerNorm) -> Norm:
    return layer.normalized_shape, layer.weight, layer.bias, layer.eps
