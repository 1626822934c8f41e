"""The sizes and declaration of an Elman network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.strict import spec
from lexmill.models.common.recurrent_shape import RecurrentSizes
from lexmill.models.declaration import Family


@dataclass(frozen=True)
class Shape(RecurrentSizes):
    """A stack of simple recurrent layers (Elman 1990; Mikolov et al. 2010)."""

    activation: Literal["tanh", "relu"] = spec("of the state; relu starts from U = 1 (Le et al. 2015)", "tanh")


FAMILY = Family(
    role="causal",
    network="Elman",
    shape=Shape,
    tiny={"n_layer": 2, "d_model": 16, "context": 12},
    variants=(
        {"activation": "relu", "n_layer": 1, "d_model": 8},
        {"ngram_rows": 31, "ngram_order": 3},
        {"tie_embeddings": False},
    ),
    carries=True,
)
