"""The sizes and declaration of an encoder with attention of linear cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """A bidirectional Transformer encoder with learned positions and pre-norm."""

    n_layer: int = spec("layers", low=1, high=MAX_LAYERS)
    n_head: int = spec("attention heads", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=1, high=MAX_WIDTH)
    d_ffn: int = spec("width of the feed-forward layers", low=1, high=MAX_WIDTH)
    max_positions: int = spec("longest text", 512, unit="tokens", low=1, high=MAX_CONTEXT)
    attention: Literal["softmax", "linformer", "performer"] = spec(
        "whole, over projected positions (Wang et al. 2020), or by random features (Choromanski et al. 2021)", "softmax"
    )
    n_feature: int = spec("projected positions of linformer, random features of performer", 64, low=1, high=MAX_WIDTH)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)

    def errors(self) -> list[str]:
        if self.d_model % self.n_head:
            return [f"d_model: {self.d_model} is no multiple of n_head ({self.n_head})"]
        return []


TINY = {"n_layer": 2, "n_head": 2, "d_model": 16, "d_ffn": 24, "max_positions": 12, "n_feature": 4}
FAMILY = Family(
    role="encoder",
    network="EfficientEncoder",
    shape=Shape,
    tiny=TINY,
    variants=({"attention": "linformer"}, {"attention": "performer"}),
    shrinking=(),
)
