"""Sizes of attention heads; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexmill.models.declaration import Sizes


class HeadSizes(Sizes):
    """Sizes with `d_model`, `n_head` and `d_head`, where a `d_head` of 0 means d_model / n_head."""

    n_head: int
    d_model: int
    d_head: int

    @property
    def head_width(self) -> int:
        """K, given or by default."""
        return self.d_head or self.d_model // self.n_head

    def errors(self) -> list[str]:
        if self.d_head == 0 and self.d_model % self.n_head:
            return [f"d_model: {self.d_model} is not a multiple of n_head ({self.n_head})"]
        return []

    @classmethod
    def resolved(cls, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {**sizes, "d_head": sizes.get("d_head") or sizes["d_model"] // sizes["n_head"]}
