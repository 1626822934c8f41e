"""Cross-entropy with label smoothing, fused with the output projection.

For logits z = W h and a vocabulary of V, the smoothed loss of target y is (Szegedy et al. 2016, section 7; Vaswani et
al. 2017 train with 0.1)

    logsumexp(z) - (1 - s) z_y - s mean(z),    and its gradient by z is softmax(z) - (1 - s) onehot(y) - s / V.

The logits of all positions would be the largest tensor of a training by far. So a slice of them is made at a time, and
stays in the processor's cache: loss and gradients come from one pass over it, and backward only scales them. mean(z)
costs nothing: it is h times the mean row of W. Cost: three matrix products, as without the fusion; memory O(slice * V).

Shape letters: N targets, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_SLICE = {"cpu": 256}  # rows at a time: 256 x 6,000 logits are 6 MB
_SLICE_ELSEWHERE = 4096


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Sum of the losses; the gradients are made on the way forward."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> Tensor:
        kind = hidden.device.type
        autocast = torch.is_autocast_enabled(kind)
        low = torch.get_autocast_dtype(kind) if autocast else weight.dtype
        with torch.autocast(kind, enabled=False):
            h, w = hidden.to(low), weight.to(low)  # (N, D), (V, D)
            wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
            grad_hidden = torch.empty_like(h) if wanted else None
            grad_weight = torch.zeros_like(w) if wanted else None
            total = torch.zeros((), dtype=torch.float32, device=h.device)
            mean_row = w.float().mean(0)
            step = _SLICE.get(kind, _SLICE_ELSEWHERE)
            for start in range(0, h.size(0), step):
                rows, y = h[start : start + step], target[start : start + step, None]
                logits = (rows @ w.t()).float()  # (slice, V)
                norm = logits.logsumexp(1, keepdim=True)
                loss = norm.sum() - (1 - smoothing) * logits.gather(1, y).sum()
                if smoothing:
                    loss = loss - smoothing * (rows.float() @ mean_row).sum()
                total += loss
                if grad_hidden is not None and grad_weight is not None:
                    grad = (
                        logits.sub_(norm).exp_().sub_(smoothing / w.size(0)) if smoothing else logits.sub_(norm).exp_()
                    )
                    grad.scatter_add_(1, y, grad.new_full(y.shape, smoothing - 1))
                    grad = grad.to(low)
                    torch.mm(grad, w, out=grad_hidden[start : start + step])
                    grad_weight.addmm_(grad.t(), rows)
        if grad_hidden is not None and grad_weight is not None:
            ctx.save_for_backward(grad_hidden.to(hidden.dtype), grad_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grads[0], grad_weight * grads[0], None, None


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """The summed loss of N targets in nats, a float32 scalar.

    Args:
        hidden: (N, D) what the output projection reads.
        weight: (V, D) the output projection, without bias.
        target: (N,) int64.
        smoothing: the probability spread evenly over the whole vocabulary; 0: plain cross-entropy.
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(hidden, weight, target, smoothing)
    return loss
