"""Rows of the delta rule: a write first takes away what the state holds under its key.

Shape letters: B batch, H heads, T time, D width, K head width.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import normalize

from lexmill.models.common.matrix_state import Terms
from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.gates import Step
from lexmill.models.common.rows.layer import LayerState, LinearMixer, precise
from lexmill.models.common.rows.shared import Shared


class DeltaNet(LinearMixer):
    """S_t = S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T, o_t = S_t q_t (Schlag et al. 2021; Yang et al. 2024).

    b_t = sigmoid(W x_t) for each head; queries and keys have length 1, which keeps the state bounded.
    """

    convolved = True

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.beta = nn.Linear(shape.d_model, shape.n_head, bias=False)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        beta = precise(self.beta(hidden)).sigmoid().mT[..., None]  # (B, H, T, 1)
        terms = Terms(normalize(query, dim=-1), normalize(key, dim=-1), value, self.decay(hidden), beta=beta)
        return self.run(terms, shared, state)

    def decay(self, hidden: Tensor) -> Tensor | None:
        """Return the state's decay, logs (B, H, T, 1); None: none."""
        return None


class GatedDeltaNet(DeltaNet):
    """S_t = S_{t-1} (a_t (I - b_t k_t k_t^T)) + b_t v_t k_t^T, o_t = S_t q_t, a_t as in Mamba-2 (Yang et al. 2025)."""

    gated = "silu"

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape)
        self.step = Step(shape)

    def decay(self, hidden: Tensor) -> Tensor:
        """Return the state's decay, logs (B, H, T, 1)."""
        decay: Tensor = self.step(hidden)[1]
        return decay
