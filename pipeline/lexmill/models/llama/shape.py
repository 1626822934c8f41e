"""The sizes and declaration of a Llama."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.common.head_sizes import GroupedHeadSizes
from lexmill.models.declaration import Family


@dataclass(frozen=True)
class Shape(GroupedHeadSizes):
    """A decoder-only Transformer with RMSNorm, rotary positions, SwiGLU and grouped queries (Touvron et al. 2023)."""

    n_layer: int = spec("blocks", low=1, high=MAX_LAYERS)
    n_head: int = spec("query heads", low=1, high=MAX_HEADS)
    n_kv_head: int = spec("key and value heads; each serves n_head / n_kv_head query heads", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=8, high=MAX_WIDTH)
    d_ffn: int = spec("width of the feed-forward layers", low=8, high=MAX_WIDTH)
    context: int = spec("longest context", unit="tokens", low=2, high=MAX_CONTEXT)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)
    d_head: int = spec("width of a head; 0: d_model / n_head", 0, low=0, high=MAX_WIDTH)
    rope_theta: float = spec("base of the rotary wavelengths", 10000.0, above=1, high=1e12)
    norm_eps: float = spec("added to the mean square", 1e-5, above=0, high=1)
    tie_embeddings: bool = spec("the output matrix is the embedding", True)


FAMILY = Family(
    role="causal",
    network="Llama",
    shape=Shape,
    tiny={"n_layer": 2, "n_head": 4, "n_kv_head": 2, "d_model": 16, "d_ffn": 24, "context": 12},
    model_types=("llama", "mistral"),
)
