"""Softmax attention over the last W positions with rotary ones, at a bounded cost for a text of any length.

Between layers with a state it finds exactly what the state has lost. In training windows of at most W positions it is
full causal attention. Cost: as of `GroupedAttention`, with at most W positions.

Shape letters: B batch, T time, S keys, W window, D width, H heads, K head width.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from lexmill.models.common.documents import document_mask
from lexmill.models.common.grouped_attention import GroupedAttention
from lexmill.models.common.position_bias import distances


class WindowCache:
    """Keys and values of the last W - 1 positions, (B, H, at most W - 1, K) each."""

    def __init__(self, window: int) -> None:
        self.window, self.length = window, 0
        self.held: tuple[Tensor, Tensor] | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add (B, H, T, K) keys and values; return those held before and these, (B, H, S, K) each."""
        self.length += keys.shape[2]
        if self.held is not None:
            keys, values = (torch.cat(pair, dim=2) for pair in zip(self.held, (keys, values), strict=True))
        oldest = max(0, keys.shape[2] - (self.window - 1))
        self.held = keys[:, :, oldest:], values[:, :, oldest:]
        return keys, values

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows` (int64, (new B,)), in that order; repeats allowed (beam search)."""
        if self.held is not None:
            self.held = self.held[0].index_select(0, rows), self.held[1].index_select(0, rows)


def window_mask(time: int, start: int, window: int, documents: Tensor | None, device: torch.device) -> Tensor | None:
    """Return which of the keys that `WindowCache` gives a query may see, (1 or B, 1, T, S); None: all earlier ones."""
    held = min(start, window - 1)
    if held + time <= window:
        return None if documents is None else document_mask(documents)
    apart = distances(time, held + time, device)
    seen = ((apart >= 0) & (apart < window))[None, None]
    return seen if documents is None else seen & document_mask(documents)


class WindowedAttention(GroupedAttention):
    """Attention with as many key and value heads as query heads; what it shares is its family's."""

    unlimited: ClassVar[bool] = True

    def __init__(self, d_model: int, n_head: int, d_head: int, window: int) -> None:
        super().__init__(d_model, n_head, n_head, d_head)
        self.window = window

    def new_state(self, capacity: int) -> WindowCache:  # type: ignore[override]
        """Return an empty cache."""
        return WindowCache(self.window)
