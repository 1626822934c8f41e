"""The sizes and declaration of a skip-gram model."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """Two vectors of width `d_model` for each token: as a centre, which is its vector, and as a context."""

    d_model: int = spec("width", low=1, high=MAX_WIDTH)
    window: int = spec("farthest context; each centre draws 1 to this", unit="tokens", low=1, high=100)
    negatives: int = spec("tokens drawn against each pair", unit="tokens", low=1, high=100)
    subsample: float = spec(
        "a token of a larger share of the text is left out with probability 1 - (this / share) ** 0.5; 1: none is",
        above=0,
        high=1,
    )


TINY = {"d_model": 8, "window": 2, "negatives": 3, "subsample": 1.0}
FAMILY = Family(
    role="static",
    network="SkipGram",
    shape=Shape,
    tiny=TINY,
    free=("window", "negatives", "subsample"),
    shrinking=(),
)
