"""The norm and scale of a step's gradients, whole in this process or sharded over several."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate

from lexmill.training.ranks import Ranks, local


def ready(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return the gradients, summed over ranks that share a matrix product."""
    found = []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        if isinstance(gradient, DTensor) and any(isinstance(place, Partial) for place in gradient.placements):
            whole = [Replicate() if isinstance(place, Partial) else place for place in gradient.placements]
            gradient = parameter.grad = gradient.redistribute(placements=whole)
        found.append(gradient)
    return found


def norm(gradients: list[Tensor], ranks: Ranks) -> Tensor:
    """Return the norm of this process's part; the squares over all processes add up to that of the whole norm.

    Of the processes that hold the same piece of a gradient, one counts it.
    """
    own = [local(gradient) for gradient in gradients if ranks.owns(gradient)]
    if not own:
        return torch.zeros((), device=ranks.device)
    return nn.utils.get_total_norm(own)


def scale(gradients: list[Tensor], factor: float) -> None:
    """Multiply all gradients in place."""
    torch._foreach_mul_([local(gradient) for gradient in gradients], factor)
