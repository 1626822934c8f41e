"""Rows with one decay for each head: fixed, or from the input.

Shape letters: B batch, H heads, T time, D width, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, normalize, pad

from lexmill.models.common.matrix_state import Terms
from lexmill.models.common.rotary import rotate
from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.gates import Step, spread, with_ones
from lexmill.models.common.rows.layer import LayerState, LinearMixer, exact, precise
from lexmill.models.common.rows.shared import Shared
from lexmill.models.common.running_max import running_max


class GatedRFA(LinearMixer):
    """S_t = g_t S_{t-1} + (1 - g_t) v_t k_t^T, z_t the same of k_t, o_t = S_t q_t / (z_t^T q_t) (Peng et al. 2021).

    Queries and keys are random features of vectors of length 1: relu(R x), the paper's arc-cosine kernel. R is drawn
    from a fixed seed and not stored. A query that shares no feature with any key reads zeros.
    """

    normed = False

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.forget = nn.Linear(shape.d_model, shape.n_head, bias=False)
        self.bias = spread(1.0, 6.0, shape.n_head)
        self.features: Tensor
        seeded = torch.Generator("cpu").manual_seed(0)
        drawn = torch.randn(shape.head_width, shape.head_width, generator=seeded, device="cpu")
        self.register_buffer("features", drawn, persistent=False)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        with exact(hidden.device):
            query, key = ((normalize(part, dim=-1) @ self.features.to(part.dtype)).relu() for part in heads[:2])
        forget = (precise(self.forget(hidden)) + self.bias).mT[..., None]  # (B, H, T, 1)
        terms = Terms(query, key * (-forget).sigmoid(), with_ones(heads[2]), logsigmoid(forget))
        out = self.run(terms, shared, state)
        return out[..., :-1] / out[..., -1:].clamp_min(1e-6)


class RetNet(LinearMixer):
    """S_t = g S_{t-1} + v_t k_t^T, o_t = S_t q_t, g = 1 - 2^(-5 - h) for head h; rotary (Sun et al. 2023)."""

    gated = "silu"

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        assert shared.rotation is not None
        query, key = (rotate(part.transpose(1, 2), shared.rotation).transpose(1, 2) for part in (query, key))
        each = torch.arange(query.shape[1], dtype=value.dtype, device=value.device)
        decay = torch.log1p(-torch.exp2(-5 - each)).view(1, -1, 1, 1).expand(*value.shape[:3], 1)
        return self.run(Terms(query * query.shape[-1] ** -0.5, key, value, decay), shared, state)


class MLSTM(LinearMixer):
    """S_t = f_t S_{t-1} + i_t v_t k_t^T, z_t the same of k_t, o_t = S_t q_t / max(1, |z_t^T q_t|) (Beck et al. 2024).

    i_t = exp(W x_t), f_t = sigmoid(W x_t). All are held relative to the running maximum m_t of i's decayed logs.
    """

    gated = "sigmoid"

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.gates = nn.Linear(shape.d_model, 2 * shape.n_head, bias=False)
        self.bias = nn.Parameter(pad(torch.linspace(3, 6, shape.n_head), (shape.n_head, 0)))  # of i, of f

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        write, forget = (precise(self.gates(hidden)) + self.bias).mT[..., None].chunk(2, 1)  # (B, H, T, 1)
        forget = logsigmoid(forget)
        before = None if state is None else state.parts.get("maximum")
        highest, decay = running_max(forget, write, before, shared.starts)
        if state is not None:
            state.parts["maximum"] = highest[:, :, -1:]
        key = key * key.shape[-1] ** -0.5 * (write - highest).exp()
        out = self.run(Terms(query, key, with_ones(value), decay), shared, state)
        return out[..., :-1] / torch.maximum(out[..., -1:].abs(), (-highest).exp())


class Mamba2(LinearMixer):
    """S_t = g_t S_{t-1} + v_t k_t^T, o_t = S_t q_t + d v_t, g_t = exp(-a_t exp(A)) (Dao and Gu 2024).

    a_t = softplus(W x_t + b), one for each head, also multiplies v_t. Each head has its own queries and keys.
    """

    gated, convolved = "silu", True

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.step = Step(shape)
        self.skip = nn.Parameter(torch.ones(shape.n_head))

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        step, decay = self.step(hidden)
        out = self.run(Terms(query, key, step * value, decay), shared, state)
        return out + self.skip[:, None, None] * value
