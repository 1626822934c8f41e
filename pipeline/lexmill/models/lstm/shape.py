"""The sizes and declaration of an LSTM."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_CONTEXT, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """A stack of long short-term memory layers (Hochreiter and Schmidhuber 1997; Zaremba et al. 2014)."""

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


FAMILY = Family(
    role="causal",
    network="LSTM",
    shape=Shape,
    tiny={"n_layer": 2, "d_model": 16, "context": 12},
    variants=({"ngram_rows": 31, "ngram_order": 3},),
)
