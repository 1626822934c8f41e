"""The scan h_t = d_t * h_{t-1} + x_t, element by element: states whose decays are no product of a vector a side.

One fused operation for each token forward and one backward, the rest at once. Autograd keeps the decays and the states.
Cost: 2 operations forward and 4 backward for each element; bound by memory, not by arithmetic.

Shape letters: T time; ... any other dimensions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Scan(torch.autograd.Function):
    """With G_t the gradient of h_t itself: g_t = G_t + d_{t+1} g_{t+1} is that of x_t, and g_t h_{t-1} that of d_t."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, write: Tensor, state: Tensor) -> Tensor:
        states = torch.empty_like(write, memory_format=torch.contiguous_format)
        before = state
        for d, x, out in zip(decay.unbind(0), write.unbind(0), states.unbind(0), strict=True):
            before = torch.addcmul(x, d, before, out=out)
        ctx.save_for_backward(decay, states, state)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decay, states, state = ctx.saved_tensors
        found = gradients[0].clone(memory_format=torch.contiguous_format)
        steps = found.unbind(0)
        for t in range(len(steps) - 1, 0, -1):
            steps[t - 1].addcmul_(decay[t], steps[t])
        by_decay = torch.empty_like(found)
        torch.mul(found[1:], states[:-1], out=by_decay[1:])
        torch.mul(found[0], state, out=by_decay[0])
        return by_decay, found, decay[0] * found[0]


def scan(decay: Tensor, write: Tensor, state: Tensor) -> Tensor:
    """Return all states, (T, ...), of decays and writes (T, ...) and the state before (...)."""
    out: Tensor = _Scan.apply(decay, write, state)
    return out
