"""Dropout on the way into a residual stream, without a tensor between. Shape letters: B rows, T time, D model width."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout

from lexmill.models.common.dropout import keep_mask


class _AddMasked(torch.autograd.Function):
    """residual + mask * update in one pass each way."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, update: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return torch.addcmul(residual, update, mask)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grads[0], grads[0] * mask, None


def add_dropped(residual: Tensor, update: Tensor, rate: float, training: bool) -> Tensor:
    """`residual + dropout(update)`, both (B, T, D)."""
    if not training or rate == 0:
        return residual + update
    if update.device.type != "cpu":
        return residual + dropout(update, rate)
    # The residual's dtype: under bf16 the scale of what is kept would be rounded by up to 0.2 %.
    out: Tensor = _AddMasked.apply(residual, update, keep_mask(residual, rate))
    return out
