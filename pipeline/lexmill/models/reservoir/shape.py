"""The sizes and declaration of an echo state network."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_CONTEXT, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """A stack of reservoirs of leaky units with fixed random weights (Jaeger 2001); only the read-out is trained."""

    n_layer: int = spec("reservoirs, each reading the one before", low=1, high=MAX_LAYERS)
    d_model: int = spec("units of a reservoir, and width of the embedding", low=8, high=MAX_WIDTH)
    context: int = spec("tokens of a training window", unit="tokens", low=2, high=MAX_CONTEXT)
    dropout: float = spec("dropout on embeddings and on each reservoir's output", 0.0, low=0, below=1)
    spectral_radius: float = spec("largest modulus of the recurrent matrix's eigenvalues", 0.9, above=0, high=10)
    sparsity: float = spec("share of the recurrent matrix's weights that are 0", 0.9, low=0, below=1)
    leak: float = spec("share of a unit's state that a token replaces", 0.5, above=0, high=1)
    input_scale: float = spec("the input's weights are drawn between minus this and this", 0.1, above=0, high=100)
    train_embedding: bool = spec("train the embedding, through the reservoir", False)

    @property
    def unlimited(self) -> bool:
        return True


FAMILY = Family(
    role="causal",
    network="Reservoir",
    shape=Shape,
    tiny={"n_layer": 2, "d_model": 16, "context": 12, "sparsity": 0.5},
    variants=({"train_embedding": True}, {"leak": 1.0, "sparsity": 0.0}),
    carries=True,
)
