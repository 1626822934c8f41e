"""Softmax attention over the likeliest keys alone, found by hashing (Reformer).

Shape letters: B batch, T time, S positions so far, D width, H heads, R rounds, K head width.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from lexmill.models.common.lsh_attention import attend_cached, attend_sorted, buckets, directions, keys_of
from lexmill.models.common.rotary import rotate
from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.layer import LayerState, StateMixer, exact, precise
from lexmill.models.common.rows.shared import Shared


class LSH(StateMixer):
    """o_t = sum of v_s by softmax(q_t k_s) over the nearest `window` earlier s in q_t's bucket; k = q / rms(q).

    Buckets are those of the vectors before rotary positions, from directions drawn from a fixed seed and not stored.
    Keys and values of all positions are kept: the text's length is not bounded, the cost of a token grows with it.
    """

    unlimited: ClassVar[bool] = False

    def __init__(self, shape: RowSizes) -> None:
        super().__init__()
        self.shape, self.n_head, self.d_head = shape, shape.n_head, shape.head_width
        inner = shape.n_head * shape.head_width
        self.vectors = nn.Linear(shape.d_model, inner, bias=False)  # queries and keys
        self.value = nn.Linear(shape.d_model, inner, bias=False)
        self.output = nn.Linear(inner, shape.d_model, bias=False)
        self.directions: Tensor
        drawn = directions(self.d_head, shape.n_bucket, shape.n_hash, torch.Generator("cpu").manual_seed(0))
        self.register_buffer("directions", drawn, persistent=False)

    def forward(self, hidden: Tensor, shared: Shared, state: LayerState | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); updates the state."""
        vectors, value = (
            precise(linear(hidden)).unflatten(-1, (self.n_head, -1)).transpose(1, 2)
            for linear in (self.vectors, self.value)
        )  # (B, H, T, K)
        assert shared.rotation is not None
        with exact(hidden.device):
            numbers = buckets(vectors, self.directions)
            if shared.documents is not None:
                numbers = numbers + self.shape.n_bucket * shared.documents[:, None, None]
            query = rotate(vectors.transpose(1, 2), shared.rotation).transpose(1, 2)
            key, window = keys_of(query), self.shape.window
            going_on = state if state is not None and state.length else None
            if state is not None:
                self._keep(state, key, value, numbers)
            if going_on is None:
                out = attend_sorted(query, key, value, numbers, window)
            else:
                keys, values, groups = (going_on.parts[name] for name in ("key", "value", "numbers"))
                out = attend_cached(query, keys, values, groups, window)
        mixed: Tensor = self.output(out.transpose(1, 2).flatten(2).to(hidden.dtype))
        return mixed

    def _keep(self, state: LayerState, key: Tensor, value: Tensor, numbers: Tensor) -> None:
        """Add positions to the state: (B, H, T, K) twice and (B, H, R, T)."""
        for name, part, time in (("key", key, 2), ("value", value, 2), ("numbers", numbers, 3)):
            before = state.parts.get(name)
            state.parts[name] = part if before is None else torch.cat([before, part], dim=time)
        state.length += key.shape[2]
