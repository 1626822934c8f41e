"""Rows without a decay: the state is the sum of all writes.

Shape letters: B batch, H heads, T time, D width, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import elu

from lexmill.models.common.matrix_state import Terms
from lexmill.models.common.random_features import LEAST, log_features, orthogonal_features
from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.gates import with_ones
from lexmill.models.common.rows.layer import LayerState, LinearMixer
from lexmill.models.common.rows.shared import Shared
from lexmill.models.common.running_max import running_max


def positive(rows: Tensor) -> Tensor:
    """phi(x) = elu(x) + 1 (Katharopoulos et al. 2020)."""
    return elu(rows) + 1


class Linear(LinearMixer):
    """S_t = S_{t-1} + v_t k_t^T, o_t = S_t q_t (Katharopoulos et al. 2020, without kernel and normaliser)."""

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        return self.run(Terms(query * query.shape[-1] ** -0.5, key, value), shared, state)


class LinearKernel(LinearMixer):
    """S_t = S_{t-1} + v_t phi(k_t)^T, o_t = S_t phi(q_t), phi = elu + 1."""

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        return self.run(Terms(positive(query), positive(key), value), shared, state)


class LinearNormalized(LinearMixer):
    """The same S_t, z_t = z_{t-1} + phi(k_t), o_t = S_t phi(q_t) / (z_t^T phi(q_t)) (Katharopoulos et al. 2020)."""

    normed = False

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        out = self.run(Terms(positive(query), positive(key), with_ones(value)), shared, state)
        return out[..., :-1] / out[..., -1:]


class Performer(LinearMixer):
    """The same with phi of FAVOR+: phi(q) . phi(k) is exp(q . k / sqrt(K)) on average (Choromanski et al. 2021).

    phi(x) = exp(W y - |y|^2 / 2), y = x / K^(1/4), with `n_feature` orthogonal random rows in W, from a fixed seed and
    not stored. What all keys so far or all features of a query share cancels: both are held relative to their maximum.
    """

    normed = False

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.features: Tensor
        drawn = orthogonal_features(shape.n_feature, shape.head_width, torch.Generator("cpu").manual_seed(0))
        self.register_buffer("features", drawn, persistent=False)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        query, key = (log_features(part, self.features) for part in (query, key))  # (B, H, T, n_feature)
        before = None if state is None else state.parts.get("maximum")
        largest = key.amax(-1, keepdim=True)
        highest, decay = running_max(torch.zeros_like(largest), largest, before, shared.starts)
        if state is not None:
            state.parts["maximum"] = highest[:, :, -1:]
        query = (query - query.amax(-1, keepdim=True)).exp() + LEAST
        key = (key - highest).exp() + LEAST
        out = self.run(Terms(query, key, with_ones(value), decay), shared, state)
        return out[..., :-1] / out[..., -1:]
