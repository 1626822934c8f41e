"""Summed cross-entropy with its gradient made in the same pass over the logits.

torch's own path holds three tensors of the logits' size beside them; this one works in blocks and holds one, the
gradient, in the same time. Equal to `torch.nn.functional.cross_entropy(..., reduction="sum")`, whose definition of
label smoothing it takes over.

Shape letters: N targets, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

IGNORED = -100
_BLOCK_BYTES = 1 << 20


class _SummedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
        gradient = torch.empty_like(logits)
        size = max(1, _BLOCK_BYTES // (4 * logits.shape[1]))
        total = torch.zeros((), dtype=torch.float64 if logits.device.type == "cpu" else torch.float32)
        total = total.to(logits.device)
        for start in range(0, len(logits), size):
            rows = slice(start, start + size)
            total += _block(logits[rows], targets[rows], label_smoothing, gradient[rows])
        ctx.save_for_backward(gradient)
        return total.float()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[0].to(gradient.dtype) if upstream[0] != 1 else gradient, None, None


def _block(logits: Tensor, targets: Tensor, smoothing: float, gradient: Tensor) -> Tensor:
    """The summed loss of some rows; their gradient is written to `gradient`."""
    log_p = torch.log_softmax(logits.float(), dim=-1)  # (n, V)
    counted = targets != IGNORED
    index = targets.clamp_min(0)[:, None]  # (n, 1)
    loss = -log_p.gather(1, index)[:, 0]
    if smoothing:
        loss = (1 - smoothing) * loss - smoothing * log_p.mean(dim=-1)
    loss = loss * counted
    p = log_p.exp_()
    if smoothing:
        p -= smoothing / p.shape[1]
    p.scatter_add_(1, index, torch.full_like(index, -(1 - smoothing), dtype=p.dtype))
    p *= counted[:, None]
    gradient.copy_(p)
    return loss.sum()


def summed_cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The sum of -log p(target) in nats, a float32 scalar, whatever the logits' precision.

    Args:
        logits: (..., V).
        targets: (...) int64; `IGNORED` (-100) counts nothing.
        label_smoothing: share of the probability spread evenly over the vocabulary.
    """
    logits, targets = logits.flatten(0, -2), targets.flatten()  # (N, V), (N,)
    out: Tensor = _SummedCrossEntropy.apply(logits, targets, label_smoothing)
    return out
