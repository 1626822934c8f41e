"""Rows with a decay for each channel and state, which is no product of two vectors: a scan.

Shape letters: B batch, H heads, T time, D width, K head width, I = H * K channels, N states of a channel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from lexmill.models.common.diagonal_scan import scan
from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.gates import inverse_softplus, spread
from lexmill.models.common.rows.layer import LayerState, LinearMixer, exact, precise
from lexmill.models.common.rows.shared import Shared


class S4(LinearMixer):
    """S_t = S_{t-1} (.) exp(-(a 1^T) (.) exp(A)) + B (.) (v_t 1^T), o_t = (S_t (.) C) 1 + d (.) v_t, all fixed in time.

    Diagonal and real (Gu et al. 2022, S4D-Real); each channel has N states. B starts so that each is a moving average.
    """

    parts, normed = 1, False

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        channels, states = self.output.in_features, shape.d_state
        self.log_a = spread(-6.9, -2.3, channels)  # steps of 0.001 to 0.1
        self.log_rate = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(channels))  # A, (I * N)
        rates = torch.arange(1.0, states + 1, device=self.log_a.device) * self.log_a.detach().exp()[:, None]
        self.write = nn.Parameter(-torch.expm1(-rates).flatten())  # B
        self.read = nn.Parameter(torch.randn(channels * states) * states**-0.5)  # C
        self.skip = nn.Parameter(torch.ones(channels))  # d

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        value = by_time(heads[0])
        rates, write, read = (one.view(value.shape[-1], -1) for one in (self.log_rate, self.write, self.read))
        decay = torch.exp(-self.log_a.exp()[:, None] * rates.exp()).expand(*value.shape, -1)
        states = scanned(decay, write * value[..., None], shared, state)
        return by_head((states * read).sum(-1) + self.skip * value, heads[0])


class Mamba(LinearMixer):
    """S_t = S_{t-1} (.) exp(-(a_t 1^T) (.) exp(A)) + (a_t (.) v_t) k_t^T, o_t = S_t q_t + d (.) v_t (Gu and Dao 2023).

    a_t = softplus(W x_t + b) for each channel, of low rank; all channels share q_t and k_t, N wide.
    """

    parts, normed, gated, convolved = 1, False, "silu", True

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        channels, states = self.output.in_features, shape.d_state
        rank = max(1, channels // 16)
        self.selection = nn.Linear(channels, rank + 2 * states, bias=False)
        self.step = nn.Linear(rank, channels, bias=False)
        self.bias = nn.Parameter(inverse_softplus(torch.logspace(-3, -1, channels)))
        self.log_rate = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(channels))  # A, (I * N)
        self.skip = nn.Parameter(torch.ones(channels))  # d

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        value = by_time(heads[0])
        selected = self.selection(value.to(self.selection.weight.dtype))
        low, query, key = selected.split([self.step.in_features, *2 * [self.shape.d_state]], -1)
        step = softplus(precise(self.step(low)) + self.bias)  # (T, B, I)
        rates = self.log_rate.view(value.shape[-1], -1).exp()
        decay = torch.exp(-step[..., None] * rates)
        states = scanned(decay, (step * value)[..., None] * precise(key)[..., None, :], shared, state)
        with exact(hidden.device):
            out = (states @ precise(query)[..., None]).squeeze(-1)
        return by_head(out + self.skip * value, heads[0])


def by_time(heads: Tensor) -> Tensor:
    """(B, H, T, K) -> (T, B, I)."""
    return heads.permute(2, 0, 1, 3).flatten(2)


def by_head(rows: Tensor, like: Tensor) -> Tensor:
    """(T, B, I) -> (B, H, T, K), the widths of `like`."""
    return rows.unflatten(-1, (like.shape[1], -1)).permute(1, 2, 0, 3)


def scanned(decay: Tensor, write: Tensor, shared: Shared, state: LayerState | None) -> Tensor:
    """Return all states of a scan, (T, B, I, N), zero before a document's start; keeps the last one."""
    if shared.starts is not None:
        decay = decay.masked_fill(shared.starts.mT[..., None, None], 0.0)
    before = None if state is None else state.parts.get("states")
    states = scan(decay, write, torch.zeros_like(write[0]) if before is None else before)
    if state is not None:
        state.parts["states"] = states[-1]
    return states
