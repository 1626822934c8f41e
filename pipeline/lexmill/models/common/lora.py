"""Low-rank adaptation (Hu et al. 2021): the matrices of the blocks stay, and learn a product of two thin ones.

    W' = W + alpha / rank * B A,    A (rank, in) drawn from a normal distribution, B (out, rank) zero at first.

At the end the product is added to the matrix, so the model is one like any other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    """Adds a product of two thin matrices to a weight."""

    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.scale = alpha / rank
        self.a = nn.Parameter(torch.randn(rank, columns) / math.sqrt(columns))
        self.b = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """(out, in) -> (out, in)."""
        return weight + self.scale * (self.b @ self.a)


def adapt(module: nn.Module, rank: int, alpha: float) -> None:
    """Freeze a network, and let the linear layers in its stacks of blocks learn products of this rank.

    Raises:
        ValueError: it has no linear layer in a stack of blocks.
    """
    module.requires_grad_(requires_grad=False)
    stacks = [stack for stack in module.modules() if isinstance(stack, nn.ModuleList)]
    layers = [layer for stack in stacks for layer in stack.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ValueError("the network has no linear layer in a stack of blocks")
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", LowRank(layer.weight, rank, alpha))


def merge(module: nn.Module) -> None:
    """Add what `adapt` let a network learn to its matrices; all of it can be trained again."""
    for layer in list(module.modules()):
        if isinstance(layer, nn.Linear) and parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    module.requires_grad_(requires_grad=True)
