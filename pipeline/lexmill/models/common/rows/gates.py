"""Parts of several rows.

Shape letters: B batch, H heads, T time, D width, V values' width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.layer import precise


class Step(nn.Module):
    """A step a_t = softplus(W x_t + b) for each head, and the decay -a_t exp(A) that it makes, (B, H, T, 1) each."""

    def __init__(self, shape: RowSizes) -> None:
        super().__init__()
        self.linear = nn.Linear(shape.d_model, shape.n_head, bias=False)
        self.bias = nn.Parameter(inverse_softplus(torch.logspace(-3, -1, shape.n_head)))
        self.log_rate = nn.Parameter(torch.linspace(1, 16, shape.n_head).log())  # A

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, D) -> steps and logs of decays."""
        bias, rate = self.bias[:, None, None], self.log_rate.exp()[:, None, None]  # (H, 1, 1)
        step = softplus(precise(self.linear(hidden)).mT.contiguous()[..., None] + bias)
        return step, -step * rate


def with_ones(value: Tensor) -> Tensor:
    """Return the values and a column of ones, which sums the keys: (..., V) -> (..., V + 1)."""
    return pad(value, (0, 1), value=1.0)


def spread(low: float, high: float, count: int) -> nn.Parameter:
    """Return `count` numbers from `low` to `high`."""
    return nn.Parameter(torch.linspace(low, high, count))


def inverse_softplus(values: Tensor) -> Tensor:
    """Return x with softplus(x) = values."""
    return values + torch.log(-torch.expm1(-values))
