"""The positions of a Marian without parameters. Shape letters: T tokens, D width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


class Places(nn.Module):
    """A Marian's fixed positions: a buffer, which no recipe draws and no optimizer reads."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)

    def forward(self, shape: Sequence[int], cache_length: int = 0, position_ids: Tensor | None = None) -> Tensor:
        """Return the positions of `shape[1]` tokens after `cache_length` others, (T, D)."""
        table: Any = self.table
        found: Tensor = table[cache_length : cache_length + shape[1]]
        return found
