"""The sizes and declaration of a convolutional network for sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lexmill.base.budgets import MAX_CONTEXT, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """Filters over windows of embeddings, of several widths side by side."""

    d_embedding: int = spec("width of the embeddings", low=1, high=MAX_WIDTH)
    filters: int = spec("filters of each width", low=1, high=MAX_WIDTH)
    widths: tuple[int, ...] = spec("widths of the windows", (3, 4, 5), unit="tokens", low=1, high=100)
    max_positions: int = spec("longest text", 512, unit="tokens", low=1, high=MAX_CONTEXT)
    dropout: float = spec("dropout on embeddings", 0.0, low=0, below=1)

    def errors(self) -> list[str]:
        if not self.widths or len(set(self.widths)) < len(self.widths):
            return ["widths: give one width or several different ones"]
        return []

    @classmethod
    def resolved(cls, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {**sizes, **({"widths": list(sizes["widths"])} if "widths" in sizes else {})}


TINY = {"d_embedding": 8, "filters": 5, "widths": (2, 3), "max_positions": 12}
FAMILY = Family(
    role="encoder",
    network="TextCNN",
    shape=Shape,
    tiny=TINY,
    variants=({"widths": (4,)},),
    shrinking=("max_positions",),
)
