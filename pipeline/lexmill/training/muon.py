"""Muon (Jordan et al. 2024): a matrix's step is its momentum with every singular value brought near 1.

The velocity and its Nesterov form are averages, v = m v + (1 - m) g and u = m v + (1 - m) g. Five Newton-Schulz steps
of the reference's quintic turn u into about U V^T of its singular value decomposition (values between 0.7 and 1.2),
which is scaled by sqrt(max(1, rows / columns)), so that one learning rate fits all shapes. The matrices in a fused
projection (query, key and value; the gates of an LSTM) are treated separately. Weight decay is decoupled.

Matrices of one shape are iterated together, in float32 or, under autocast (the training's `precision`), in its type;
the reference uses bfloat16. A sharded matrix (DTensor) is gathered on every rank for the iteration, then each rank
keeps its share: the result is that of one process.

Cost: with r <= c the sides of a matrix, 5 * (4 r^2 c + 2 r^3) FLOPs a step. Relative to a training step's products that
is about 5 * r over the batch's tokens: 1 % at width 768 and half a million tokens, 30 % at width 128 and two thousand.
Memory: one number a weight (AdamW: two).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

_A, _B, _C = 3.4445, -4.7750, 2.0315  # the quintic a x + b x^3 + c x^5, steepest at 0
_STEPS = 5
_TINY = 1e-7
_AT_ONCE = 1 << 24  # numbers iterated together: they take five times their memory

Layout = tuple[int, int]


@torch.no_grad()
def orthogonalize(matrices: Tensor) -> Tensor:
    """Return about U V^T of each matrix U S V^T, (N, rows, columns), in the computation's type; zeros stay zeros."""
    kind = matrices.device.type
    low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    with torch.autocast(kind, enabled=False):
        x = matrices.to(low)
        tall = x.size(1) > x.size(2)
        if tall:
            x = x.transpose(1, 2)
        x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=_TINY)  # no singular value is above 1
        for _ in range(_STEPS):
            gram = x @ x.transpose(1, 2)  # (N, r, r)
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
        return x.transpose(1, 2) if tall else x


class MuonOptimizer(torch.optim.Optimizer):
    """Muon on tensors of two axes.

    Args:
        parameters: each with its layout of matrices, (groups, parts) as in `mixer.fused_layouts`; (1, 1): one matrix.
        lr, momentum, weight_decay: see the module.
    """

    def __init__(
        self, parameters: Iterable[tuple[Tensor, Layout]], *, lr: float, momentum: float, weight_decay: float
    ) -> None:
        by_layout: dict[Layout, list[Tensor]] = {}
        for parameter, layout in parameters:
            if parameter.ndim != 2 or parameter.size(0) % math.prod(layout):
                raise ValueError(f"a tensor of shape {tuple(parameter.shape)} is not {layout[1]} matrices")
            by_layout.setdefault(layout, []).append(parameter)
        groups: list[dict[str, Any]] = [{"params": found, "layout": layout} for layout, found in by_layout.items()]
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        assert closure is None, "Muon takes the gradients that are there"
        for group in self.param_groups:
            by_shape: dict[tuple[Any, ...], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault((*parameter.shape, parameter.device), []).append(parameter)
            for parameters in by_shape.values():
                size = max(1, _AT_ONCE // parameters[0].numel())
                for start in range(0, len(parameters), size):
                    self._step(parameters[start : start + size], group)

    def _step(self, parameters: list[Tensor], group: Mapping[str, Any]) -> None:
        """Update parameters of one shape."""
        momentum, (groups, parts) = group["momentum"], group["layout"]
        rows, columns = parameters[0].size(0) // parts, parameters[0].size(1)
        updates = []
        for parameter in parameters:
            assert parameter.grad is not None
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            velocity = state["momentum_buffer"].lerp_(parameter.grad, 1 - momentum)
            update = parameter.grad.lerp(velocity, momentum)
            whole = update.full_tensor() if isinstance(update, DTensor) else update
            # (groups, parts, rows of a part in a group, columns) -> (parts, rows, columns)
            updates.append(whole.view(groups, parts, -1, columns).transpose(0, 1).reshape(parts, rows, columns))
        steps = orthogonalize(torch.cat(updates)).split(parts)
        scale = math.sqrt(max(1.0, rows / columns))
        for parameter, step in zip(parameters, steps, strict=True):
            change = step.reshape(parts, groups, -1, columns).transpose(0, 1).reshape(parameter.shape)
            change = change.to(parameter.dtype)
            if isinstance(parameter, DTensor):
                # Every rank has the whole and cuts its own share: nothing is sent.
                change = distribute_tensor(change, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(change, alpha=-group["lr"] * scale)
