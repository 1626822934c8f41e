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


class GroupedHeadSizes(HeadSizes):
    """Sizes with `n_kv_head` too, key and value heads that serve n_head / n_kv_head query heads each; 0: n_head."""

    n_kv_head: int

    @property
    def kv_heads(self) -> int:
        """G, given or by default."""
        return self.n_kv_head or self.n_head

    @property
    def rotary(self) -> bool:
        """Whether positions are rotary, which takes an even head width."""
        return True

    def errors(self) -> list[str]:
        found = super().errors()
        if self.n_head % self.kv_heads:
            found.append(f"n_kv_head: {self.n_kv_head} does not divide n_head ({self.n_head})")
        if not found and self.rotary and self.head_width % 2:
            found.append("d_head: rotary positions need an even head width")
        return found

    @classmethod
    def resolved(cls, sizes: Mapping[str, Any]) -> dict[str, Any]:
        whole = super().resolved(sizes)
        return {**whole, "n_kv_head": whole.get("n_kv_head") or whole["n_head"]}
