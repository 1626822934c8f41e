"""Dropout (Srivastava et al. 2014), fast on a CPU.

torch draws one Mersenne Twister number per element on a CPU. Here the mask takes 16 random bits per element from
numpy's SFC64, seeded by torch's generator: 0.6 of the time forward and backward, still a function of torch's random
state alone. Other devices use torch's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class _Masked(torch.autograd.Function):
    """hidden * mask; only the mask is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return hidden * mask

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradients[0] * mask, None


def keep_mask(like: Tensor, probability: float) -> Tensor:
    """Return a mask of `like`'s shape and dtype: 0 with `probability` (to 2^-16), else 1 / (share kept)."""
    if torch.compiler.is_compiling():
        mask: Tensor = torch.ops.lexmill.keep_mask(like.detach(), probability)
        return mask
    return _mask(like, probability)


def _mask(like: Tensor, probability: float) -> Tensor:
    dropped = round(probability * (1 << 16))
    seed = int(torch.randint(1 << 62, ()))
    words = np.random.Generator(np.random.SFC64(seed)).integers(0, 1 << 64, size=-(-like.numel() // 4), dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16)[: like.numel()])
    mask = (bits >= dropped - (1 << 15)).to(like.dtype)
    return mask.mul_((1 << 16) / max(1, (1 << 16) - dropped)).view(like.shape)


# numpy cannot be compiled, and a compiler that traced into it would take the seed for a constant.
torch.library.define(
    "lexmill::keep_mask", "(Tensor like, float probability) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,)
)
torch.library.impl("lexmill::keep_mask", "CPU", _mask)
torch.library.register_fake("lexmill::keep_mask", lambda like, probability: like.new_empty(like.shape))


class Dropout(nn.Module):
    """In training, zero each element with `probability` and scale the others to keep the mean."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0 <= probability < 1:
            raise ValueError(f"a dropout probability is at least 0 and below 1, not {probability}")
        self.probability = probability

    def forward(self, hidden: Tensor) -> Tensor:
        """Return a tensor of the same shape."""
        if not self.training or self.probability == 0:
            return hidden
        if hidden.device.type != "cpu":
            return nn.functional.dropout(hidden, self.probability)
        out: Tensor = _Masked.apply(hidden, keep_mask(hidden, self.probability))
        return out

    def extra_repr(self) -> str:
        return f"{self.probability}"


class _AddMasked(torch.autograd.Function):
    """residual + mask * update in one pass each way."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, update: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return torch.addcmul(residual, update, mask)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradients[0], gradients[0] * mask, None


def add_dropped(residual: Tensor, update: Tensor, probability: float, training: bool) -> Tensor:
    """Return `residual + dropout(update)`, all of one shape, without an intermediate tensor."""
    if not training or probability == 0:
        return residual + update
    if update.device.type != "cpu":
        return residual + nn.functional.dropout(update, probability)
    # The mask has the residual's dtype: bf16 would round the scale by up to 0.2 %.
    out: Tensor = _AddMasked.apply(residual, update, keep_mask(residual, probability))
    return out
