"""The sizes that all recurrent language models have."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_CONTEXT, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Sizes


@dataclass(frozen=True)
class RecurrentSizes(Sizes):
    """A stack of recurrent layers."""

    n_layer: int = spec("layers", low=1, high=MAX_LAYERS)
    d_model: int = spec("width of the embedding and of each layer's state", low=8, high=MAX_WIDTH)
    context: int = spec("tokens through which a training step looks back", unit="tokens", low=2, high=MAX_CONTEXT)
    dropout: float = spec("dropout on embeddings and between layers", 0.0, low=0, below=1)
    ngram_rows: int = spec(
        "rows of each table of hashed n-grams, added to the embedding; 0: none", 0, low=0, high=MAX_VOCABULARY
    )
    ngram_order: int = spec("the longest of these n-grams", 2, unit="tokens", low=2, high=4)
    tie_embeddings: bool = spec("the output matrix is the embedding (Press and Wolf 2017)", True)

    @property
    def unlimited(self) -> bool:
        return True
