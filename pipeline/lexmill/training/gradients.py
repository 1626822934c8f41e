"""Gradients of a step that lie in this process, or piece by piece in several: their norm and their scale."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate

from lexmill.training.ranks import Ranks, local


def ready(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradients, with the parts summed that ranks made which share a matrix product."""
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
    """The norm of this process's own part, each piece of a gradient counted by one process of those that hold it.

    The squares of all processes add up to the square of the whole norm.
    """
    own = [local(gradient) for gradient in gradients if ranks.owns(gradient)]
    if not own:
        return torch.zeros((), device=ranks.device)
    return nn.utils.get_total_norm(own)


def scale(gradients: list[Tensor], factor: float) -> None:
    """Multiply all of them in place."""
    torch._foreach_mul_([local(gradient) for gradient in gradients], factor)
