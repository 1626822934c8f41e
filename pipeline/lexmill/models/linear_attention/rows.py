"""The rows of the family: what each token writes, what decays, what is read.

Shape letters: B batch, T time, D width, H heads, K head width. S_t is V x K as in the papers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lexmill.models.common.matrix_state import Terms
from lexmill.models.common.rotary import rotate
from lexmill.models.linear_attention.layer import Attention, FamilyMixer, LayerState, LinearMixer, Shared


class RetNet(LinearMixer):
    """S_t = g S_{t-1} + v_t k_t^T, o_t = S_t q_t, g = 1 - 2^(-5 - h) for head h; rotary (Sun et al. 2023)."""

    gated = True

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        if shared.rotation is not None:
            query, key = (rotate(part.transpose(1, 2), shared.rotation).transpose(1, 2) for part in (query, key))
        each = torch.arange(query.shape[1], dtype=value.dtype, device=value.device)
        decay = torch.log1p(-torch.exp2(-5 - each)).view(1, -1, 1, 1).expand(*value.shape[:3], 1)
        return self.run(Terms(query * query.shape[-1] ** -0.5, key, value, decay), shared, state)


ROWS: dict[str, type[FamilyMixer]] = {"retnet": RetNet, "attention": Attention}
