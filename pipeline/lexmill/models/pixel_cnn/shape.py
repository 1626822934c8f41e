"""The sizes and declaration of a convolutional network over drawn text."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_CONTEXT, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """Three convolutions of stride 2, each with batch norm and ReLU, from 8 rows of pixels to one."""

    d_model: int = spec("width of a token's state", low=1, high=MAX_WIDTH)
    characters: int = spec("characters of a token that are drawn; longer ones are cut", 8, low=1, high=1000)
    filters: int = spec(
        "filters of the first convolution; each further one has twice as many",
        16,
        low=1,
        high=MAX_WIDTH,
    )
    kernel: int = spec("height and width of the filters, an odd number", 3, unit="pixels", low=3, high=15)
    max_positions: int = spec("longest text", 512, unit="tokens", low=1, high=MAX_CONTEXT)
    dropout: float = spec("dropout on the states", 0.0, low=0, below=1)

    def errors(self) -> list[str]:
        return [] if self.kernel % 2 else [f"kernel: {self.kernel} is even, so no pixel is its middle; give an odd one"]


TINY = {"characters": 2, "filters": 4, "d_model": 8, "max_positions": 12}
FAMILY = Family(
    role="encoder",
    network="PixelCNN",
    shape=Shape,
    tiny=TINY,
    variants=({"kernel": 5},),
    shrinking=("max_positions",),
)
