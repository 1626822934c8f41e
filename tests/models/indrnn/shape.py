"""The sizes and declaration of an independently recurrent network."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """A stack of h_t = tanh(W x_t + u * h_{t-1} + b): each number of the state has its own weight u."""

    n_layer: int = spec("layers", low=1)
    d_model: int = spec("width", low=8)
    context: int = spec("tokens through which a training step looks back", unit="tokens", low=2)
    dropout: float = spec("dropout on embeddings and between layers", 0.0, low=0, below=1)


TINY = {"n_layer": 2, "d_model": 16, "context": 12}
FAMILY = Family(role="causal", network="IndRNN", shape=Shape, tiny=TINY, unlimited=True, carries=True)
