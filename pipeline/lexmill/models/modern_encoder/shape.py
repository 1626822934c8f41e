"""The sizes and declaration of a modern encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """A bidirectional Transformer encoder with rotary positions, gated feed-forward layers and pre-norm."""

    n_layer: int = spec("layers", low=1, high=MAX_LAYERS)
    n_head: int = spec("attention heads", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=2, high=MAX_WIDTH)
    d_ffn: int = spec("width of the feed-forward layers, between two input matrices and one", low=1, high=MAX_WIDTH)
    max_positions: int = spec("longest text", 512, unit="tokens", low=1, high=MAX_CONTEXT)
    norm_kind: Literal["layer", "rms"] = spec("layer norm or root-mean-square norm", "layer")
    rope_theta: float = spec("base of the rotary wavelengths", 10000.0, above=1, high=1e12)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)

    def errors(self) -> list[str]:
        if self.d_model % (2 * self.n_head):
            return [
                f"d_model: {self.d_model} is no multiple of 2 * n_head ({2 * self.n_head}): heads are rotated by pairs"
            ]
        return []


FAMILY = Family(
    role="encoder",
    network="ModernEncoder",
    shape=Shape,
    tiny={"n_layer": 2, "n_head": 2, "d_model": 16, "d_ffn": 24, "max_positions": 12},
    variants=({"norm_kind": "rms"},),
    shrinking=("max_positions",),
)
