"""Rows without a decay: the state is the sum of all writes.

Shape letters: B batch, H heads, T time, D width, K head width.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import elu

from lexmill.models.common.matrix_state import Terms
from lexmill.models.linear_attention.gates import with_ones
from lexmill.models.linear_attention.layer import LayerState, LinearMixer
from lexmill.models.linear_attention.shared import Shared


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
