"""The sizes and declaration of a GPT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.common.head_sizes import HeadSizes
from lexmill.models.declaration import Family


@dataclass(frozen=True)
class Shape(HeadSizes):
    """A decoder-only Transformer with learned positions, GELU and tied embeddings (Radford et al. 2018, 2019).

    Pre-norm: GPT-2 and GPT-3. Post-norm, without a final norm: the first GPT.
    """

    n_layer: int = spec("blocks", low=1, high=MAX_LAYERS)
    n_head: int = spec("attention heads", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=8, high=MAX_WIDTH)
    context: int = spec("longest context", unit="tokens", low=2, high=MAX_CONTEXT)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)
    d_head: int = spec("width of a head; 0: d_model / n_head", 0, low=0, high=MAX_WIDTH)
    norm: Literal["pre", "post"] = spec("layer norm before each sub-layer or after it", "pre")
    activation: Literal["gelu_tanh", "gelu"] = spec("GELU in its tanh form (GPT-2), or exact", "gelu_tanh")


FAMILY = Family(
    role="causal",
    network="GPT",
    shape=Shape,
    tiny={"n_layer": 2, "n_head": 2, "d_model": 16, "context": 12},
    model_types=("gpt2",),
)
