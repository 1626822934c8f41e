"""The sizes and declaration of a multi-layer perceptron on the mean of a text's embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from lexmill.base.budgets import MAX_CONTEXT, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes

Activation = Literal["sigmoid", "tanh", "relu", "leaky_relu", "elu", "softplus", "swish", "gelu", "sine"]


@dataclass(frozen=True)
class Shape(Sizes):
    """The mean of the embeddings of a text's tokens, then layers, each followed by its activation."""

    n_layer: int = spec("hidden layers; 0: the mean as it is", low=0, high=MAX_LAYERS)
    d_model: int = spec("width of embeddings and layers", low=1, high=MAX_WIDTH)
    activation: Activation = spec("after each layer", "relu")
    max_positions: int = spec("longest text", 512, unit="tokens", low=1, high=MAX_CONTEXT)
    dropout: float = spec("dropout on the mean and on each layer's output", 0.0, low=0, below=1)


TINY = {"n_layer": 2, "d_model": 16, "max_positions": 12}
FAMILY = Family(
    role="encoder",
    network="TextMLP",
    shape=Shape,
    tiny=TINY,
    variants=({"n_layer": 0}, *({"activation": one} for one in get_args(Activation)[1:])),
    shrinking=("max_positions",),
)
