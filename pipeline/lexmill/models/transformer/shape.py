"""The sizes and declaration of an encoder-decoder Transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """An encoder-decoder Transformer (Vaswani et al. 2017); one embedding for source, target and output."""

    encoder_layers: int = spec("encoder blocks", low=1, high=MAX_LAYERS)
    decoder_layers: int = spec("decoder blocks", low=1, high=MAX_LAYERS)
    n_head: int = spec("attention heads", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=8, high=MAX_WIDTH)
    d_ffn: int = spec("width of the feed-forward layers", low=8, high=MAX_WIDTH)
    dropout: float = spec("dropout on embeddings and residuals", 0.1, low=0, below=1)
    norm: Literal["pre", "post"] = spec("layer norm before each sub-layer or after it", "pre")
    max_positions: int = spec("longest sentence", 256, unit="tokens", low=2, high=MAX_CONTEXT)

    def errors(self) -> list[str]:
        if self.d_model % self.n_head:
            return [f"d_model: {self.d_model} is not a multiple of n_head ({self.n_head})"]
        return []


FAMILY = Family(
    role="encoder_decoder",
    network="Transformer",
    shape=Shape,
    tiny={"encoder_layers": 1, "decoder_layers": 1, "n_head": 2, "d_model": 16, "d_ffn": 24, "max_positions": 12},
    model_types=("pegasus", "marian"),
    shrinking=(),
)
