"""The sizes and declaration of a GloVe model."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """Two vectors of width `d_model` for each token, whose sum is its vector, and two biases."""

    d_model: int = spec("width", low=1, high=MAX_WIDTH)
    window: int = spec("tokens on each side that are counted, each as 1 / distance", unit="tokens", low=1, high=100)
    x_max: float = spec("counts from here on weigh 1", 100.0, above=0, high=1e9)
    alpha: float = spec("smaller ones weigh (count / x_max) ** alpha", 0.75, low=0, high=10)


TINY = {"d_model": 8, "window": 2, "x_max": 10.0, "alpha": 0.75}
FAMILY = Family(role="static", network="GloVe", shape=Shape, tiny=TINY, free=("window", "x_max", "alpha"), shrinking=())
