"""Rows with a decay for each key, or for each key and each value.

Shape letters: B batch, H heads, T time, D width, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lexmill.models.common.matrix_state import Terms
from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.gates import spread
from lexmill.models.common.rows.layer import LayerState, LinearMixer, precise
from lexmill.models.common.rows.shared import Shared


class DFW(LinearMixer):
    """S_t = S_{t-1} (.) (b_t a_t^T) + v_t k_t^T, o_t = S_t q_t, a and b sigmoids (Mao 2022, decaying fast weights)."""

    parts = 5

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.bias = spread(1.0, 6.0, shape.head_width)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value, by_key, by_value = heads
        decays = (logsigmoid(part + self.bias) for part in (by_key, by_value))
        return self.run(Terms(query * query.shape[-1] ** -0.5, key, value, *decays), shared, state)


class GLA(LinearMixer):
    """S_t = S_{t-1} Diag(a_t) + v_t k_t^T, o_t = S_t q_t (Yang et al. 2024); a_t = sigmoid(W x_t)^(1/16), low rank."""

    gated = "silu"
    rank = 16

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.narrow = nn.Linear(shape.d_model, self.rank, bias=False)
        self.forget = nn.Linear(self.rank, self.output.in_features)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        decay = logsigmoid(precise(self.heads(self.forget(self.narrow(hidden))))) / 16
        return self.run(Terms(query * query.shape[-1] ** -0.5, key, value, decay), shared, state)


class RWKV6(LinearMixer):
    """S_t = S_{t-1} Diag(a_t) + v_t k_t^T, o_t = (S_{t-1} + v_t (d (.) k_t)^T) q_t (Peng et al. 2024).

    log a_t = -exp(w + W tanh(W' x_t)), bounded below at -e^5, where exp underflows in float32. The bonus d stands on
    the keys, as in the paper. A short convolution takes the place of its shift by one token.
    """

    gated, convolved = "silu", True
    rank = 32

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.narrow = nn.Linear(shape.d_model, self.rank, bias=False)
        self.forget = nn.Linear(self.rank, self.output.in_features, bias=False)
        self.bias = spread(-6.0, -1.0, shape.head_width)
        self.bonus = nn.Parameter(torch.ones(self.output.in_features))

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        rate = precise(self.heads(self.forget(self.narrow(hidden).tanh()))) + self.bias
        bonus = self.bonus.view(-1, 1, self.shape.head_width)
        terms = Terms(query * query.shape[-1] ** -0.5, key, value, -rate.clamp_max(5.0).exp(), bonus=bonus)
        return self.run(terms, shared, state)


class HGRN2(LinearMixer):
    """S_t = S_{t-1} Diag(a_t) + v_t (1 - a_t)^T, o_t = S_t q_t, a_t = sigmoid(W x_t + b) (Qin et al. 2024).

    The biases are spread over a head's keys, in place of the paper's lower bound of each layer.
    """

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.bias = spread(1.0, 6.0, shape.head_width)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, forget, value = heads[0], heads[1] + self.bias, heads[2]
        return self.run(Terms(query, (-forget).sigmoid(), value, logsigmoid(forget)), shared, state)
