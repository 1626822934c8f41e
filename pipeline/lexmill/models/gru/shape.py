"""The sizes and declaration of a GRU."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.models.common.recurrent_shape import RecurrentSizes
from lexmill.models.declaration import Family


@dataclass(frozen=True)
class Shape(RecurrentSizes):
    """A stack of layers of gated recurrent units (Cho et al. 2014)."""


FAMILY = Family(
    role="causal",
    network="GRU",
    shape=Shape,
    tiny={"n_layer": 2, "d_model": 16, "context": 12},
    variants=({"ngram_rows": 31, "ngram_order": 3}, {"tie_embeddings": False}),
    carries=True,
)
