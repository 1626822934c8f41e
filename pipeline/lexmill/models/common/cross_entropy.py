"""Summed cross-entropy, fused with the output projection.

For logits z = W h over a vocabulary of V, the loss of target y under label smoothing s is (Szegedy et al. 2016,
section 7; Vaswani et al. 2017 train with 0.1)

    logsumexp(z) - (1 - s) z_y - s mean(z),    and its gradient by z is softmax(z) - (1 - s) onehot(y) - s / V.

Entries that are never predicted, as padding, can be left out of the mean; V is then the number of the others.

The logits of all positions would be by far the largest tensor of a training. So they are computed one slice at a time:
as many rows as keep it in the processor's cache, but in float32 at least 256, since products of fewer with a large
vocabulary take up to twice as long. One visit gives loss and gradients, and backward only scales them. Three terms need
no slice: mean(z) is h times the mean row of W; the s / V of the gradient adds the same row everywhere; and softmax is
divided by its sum after the product with W or h, which are narrower (an ignored target divides by infinity).
Cost: the three matrix products of the unfused loss, plus 10 % (4,000 targets, D 256, V 4,000, one core); memory
O(N * D + V * D).

Shape letters: N targets, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

IGNORED = -100
_SLICE = {"cpu": 1 << 19}  # logits at a time: 2 MB, what a core's own cache holds
_SLICE_ELSEWHERE = 1 << 26
_FEWEST_ROWS = {torch.float32: 256}  # of a slice; else 32
_LINE = 16  # float32 numbers in a cache line


class _FusedCrossEntropy(torch.autograd.Function):
    """Sum of the losses; forward also computes the gradients."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, fixed: tuple[float, Tensor | None, list[int]]
    ) -> Tensor:
        smoothing, bias, unsmoothed = fixed
        kind = hidden.device.type
        low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        learning = any(ctx.needs_input_grad[:2])
        with torch.autocast(kind, enabled=False):
            h, w = hidden.to(low), weight.to(low)  # (N, D), (V, D)
            counted = (targets != IGNORED)[:, None]  # (N, 1)
            index = targets.clamp_min(0)[:, None]
            # The sum of a million nats keeps its last digits.
            total = torch.zeros((), dtype=torch.float64 if kind in ("cpu", "cuda") else torch.float32, device=h.device)
            grad_hidden = torch.empty(h.shape if learning else (0, 0), dtype=torch.float32, device=h.device)
            grad_weight = torch.zeros(w.shape if learning else (0, 0), dtype=torch.float32, device=h.device)
            step = max(_FEWEST_ROWS.get(low, 32), _SLICE.get(kind, _SLICE_ELSEWHERE) // w.size(0))
            room = None
            if kind == "cpu" and low == torch.float32:  # made once, and each row begins a cache line
                width = -(-w.size(0) // _LINE) * _LINE
                room = torch.empty(min(step, h.size(0)), width, device=h.device)[:, : w.size(0)]
            for start in range(0, h.size(0), step):
                rows, y, some = h[start : start + step], index[start : start + step], counted[start : start + step]
                out = None if room is None else room[: len(rows)]
                logits = torch.mm(rows, w.t(), out=out).float()  # (n, V)
                if bias is not None:
                    logits += bias
                top = logits.amax(1, keepdim=True)
                loss = top - (1 - smoothing) * logits.gather(1, y)
                share = logits.sub_(top).exp_()  # the softmax, still to be divided by
                mass = share.sum(1, keepdim=True)  # (n, 1)
                total += loss.add_(mass.log()).mul_(some).sum()
                if learning:
                    share.scatter_add_(1, y, mass * (smoothing - 1))
                    share = share.to(low)
                    mass = mass.masked_fill_(~some, math.inf)
                    torch.div(share @ w, mass, out=grad_hidden[start : start + step])
                    scaled = (rows / mass).to(low)
                    if low == torch.float32:
                        grad_weight.addmm_(share.t(), scaled)
                    else:
                        grad_weight += share.t() @ scaled
            if smoothing:
                share_each = smoothing / (w.size(0) - len(unsmoothed))
                row = w.float().sum(0) - w[unsmoothed].float().sum(0)  # (D,)
                h_sum = (h * counted).float().sum(0)  # (D,)
                total -= share_each * (h_sum @ row)
                if bias is not None:
                    total -= share_each * (bias.float().sum() - bias[unsmoothed].float().sum()) * counted.sum()
                if learning:
                    grad_hidden -= share_each * row * counted
                    grad_weight -= share_each * h_sum
                    grad_weight[unsmoothed] += share_each * h_sum
            if learning:
                ctx.save_for_backward(grad_hidden.to(hidden.dtype), grad_weight.to(weight.dtype))
        return total.float()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * upstream[0], grad_weight * upstream[0], None, None


def fused_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    *,
    bias: Tensor | None = None,
    unsmoothed: Sequence[int] = (),
) -> Tensor:
    """Return the sum of -log p(target) in nats, a float32 scalar, whatever the precision of the products.

    Equal to `torch.nn.functional.cross_entropy(hidden @ weight.t(), targets, reduction="sum")`. Under autocast the
    products use its precision; softmax and sums are float32.

    Args:
        hidden: (..., D), what the output projection reads.
        weight: (V, D), the output projection.
        targets: (...) int64; `IGNORED` (-100) counts nothing.
        label_smoothing: share of the probability spread evenly over the vocabulary.
        bias: (V,), added to the logits; it gets no gradient.
        unsmoothed: entries that get no share of it.
    """
    fixed = (label_smoothing, bias, list(unsmoothed))
    out: Tensor = _FusedCrossEntropy.apply(hidden.flatten(0, -2), weight, targets.flatten(), fixed)
    return out
