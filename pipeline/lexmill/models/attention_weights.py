"""The weights of a network's softmax attention, computed beside it: the fused kernel gives none.

A pass of the network is watched. For each call of torch's `scaled_dot_product_attention` the softmax is written out
from the same queries and keys. So no family needs a second forward pass of its own; what attends otherwise is not seen.
Cost: a pass, and H * T^2 numbers a layer: for pictures, not for training.

Shape letters: B texts, T tokens, H heads, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from lexmill.models.common.attention import softmax_at


class _Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        more = dict(kwargs or {})
        if func is scaled_dot_product_attention:
            self.found.append(softmax_weights(*args[:2], *args[3:4], **{k: more[k] for k in _KNOWN & more.keys()}))
        return func(*args, **more)


_KNOWN = {"attn_mask", "is_causal", "scale"}


def softmax_weights(
    query: Tensor, key: Tensor, attn_mask: Tensor | None = None, *, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """Return softmax(query key^T * scale) under the mask, (B, H, T, T) float32; a row without keys is 0.

    Args:
        query, key: (B, H, T, K) each.
        attn_mask: true where a query may attend, or numbers to be added to the scores.
        is_causal: no query sees later keys.
        scale: default 1 / sqrt(K).
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query.float() @ key.float().transpose(-2, -1) * scale
    mask = torch.ones_like(scores, dtype=torch.bool)
    if is_causal:
        mask = mask.tril()
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        scores, attn_mask = scores + attn_mask, attn_mask > -torch.inf
    return softmax_at(scores, mask if attn_mask is None else mask & attn_mask)


@torch.no_grad()
def attention_weights(module: Callable[[Tensor, Tensor], Any], tokens: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the weights of each layer from the first, (B, H, T, T) each: of each token on all.

    Args:
        module: `module(tokens, mask)` runs the network; in eval mode.
        tokens, mask: (B, T) each; as many queries as keys in each layer, and as many heads.
    """
    with _Watch() as watch:
        module(tokens, mask)
    return watch.found


def rollout(layers: Sequence[Tensor]) -> Tensor:
    """Return how much of each token's input reaches each token's last state, (B, T, T) (Abnar and Zuidema 2020).

    A layer passes on half by attention, the mean over its heads, and half by its residual; layers multiply.

    Args:
        layers: of `attention_weights`.
    """
    size = layers[0].shape[-1]
    whole = torch.eye(size, device=layers[0].device)
    for weights in layers:
        whole = (weights.mean(dim=1) + torch.eye(size, device=weights.device)) / 2 @ whole
    return whole
