"""Rows with slots: softmax attention over a bounded memory, two matrix states one after the other.

Shape letters: B batch, H heads, T time, D width, K head width, M slots.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lexmill.models.common.matrix_state import Terms
from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.layer import LayerState, LinearMixer, precise
from lexmill.models.common.rows.shared import Shared


class ABC(LinearMixer):
    """K_t = K_{t-1} + k_t f_t^T, V_t = V_{t-1} + v_t f_t^T, o_t = V_t softmax(K_t^T q_t) (Peng et al. 2022).

    f_t = softmax(W x_t) over the slots. As in the paper, a slot holds an average: both are divided by the sum of f.
    """

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.control = nn.Linear(shape.d_model, shape.n_head * shape.n_slot, bias=False)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        write = precise(self.control(hidden)).unflatten(-1, (-1, self.shape.n_slot)).transpose(1, 2).softmax(-1)
        one = torch.ones_like(write[..., :1])
        total = self.run(Terms(one, one, write), shared, state, "total").clamp_min(1e-6)  # (B, H, T, M)
        scores = self.run(Terms(query * query.shape[-1] ** -0.5, key, write), shared, state, "keys") / total
        return self.run(Terms(scores.softmax(-1) / total, write, value), shared, state, "values")


class GSA(LinearMixer):
    """K_t = K_{t-1} Diag(a_t) + k_t f_t^T, V_t the same of v_t, f_t = 1 - a_t, o_t = V_t softmax(K_t^T q_t).

    a_t = sigmoid(W x_t)^(1/8), one for each slot (Zhang et al. 2024).
    """

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.forget = nn.Linear(shape.d_model, shape.n_head * shape.n_slot, bias=False)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        forget = self.forget(hidden).unflatten(-1, (-1, self.shape.n_slot)).transpose(1, 2)
        decay = logsigmoid(precise(forget)) / 8  # (B, H, T, M)
        write = -torch.expm1(decay)
        terms = Terms(query * query.shape[-1] ** -0.5, key, write, value_decay=decay)
        weights = self.run(terms, shared, state, "keys").softmax(-1)
        return self.run(Terms(weights, write, value, decay), shared, state, "values")
