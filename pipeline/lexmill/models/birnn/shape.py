"""The sizes and declaration of a bidirectional recurrent encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """Layers that read a text from both ends (Schuster and Paliwal 1997; Graves and Schmidhuber 2005)."""

    n_layer: int = spec("layers", low=1, high=MAX_LAYERS)
    d_embedding: int = spec("width of the token embeddings", low=1, high=MAX_WIDTH)
    d_state: int = spec("width of the state of each direction; hidden states have twice that", low=1, high=MAX_WIDTH)
    cell: Literal["elman", "lstm", "gru"] = spec("what reads the text in each direction", "lstm")
    dropout: float = spec("dropout on embeddings and between layers", 0.0, low=0, below=1)
    max_positions: int = spec("longest text read at once", 512, unit="tokens", low=1, high=MAX_CONTEXT)


FAMILY = Family(
    role="encoder",
    network="BiRNN",
    shape=Shape,
    tiny={"n_layer": 2, "d_embedding": 12, "d_state": 8, "max_positions": 12},
    variants=({"cell": "elman"}, {"cell": "gru"}),
    free=("dropout", "max_positions"),
    shrinking=(),
)
