"""The sizes and declaration of an LSTM."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.models.common.recurrent_shape import RecurrentSizes
from lexmill.models.declaration import Family


@dataclass(frozen=True)
class Shape(RecurrentSizes):
    """A stack of long short-term memory layers (Hochreiter and Schmidhuber 1997; Zaremba et al. 2014)."""


FAMILY = Family(
    role="causal",
    network="LSTM",
    shape=Shape,
    tiny={"n_layer": 2, "d_model": 16, "context": 12},
    variants=({"ngram_rows": 31, "ngram_order": 3},),
    carries=True,
)
