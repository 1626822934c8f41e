"""The sizes, options and declaration of a decoder-only Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.common.head_sizes import GroupedHeadSizes
from lexmill.models.declaration import Family


@dataclass(frozen=True)
class Shape(GroupedHeadSizes):
    """A decoder-only Transformer of any make; `gpt` and `llama` are two of them, with checkpoints to exchange."""

    n_layer: int = spec("blocks", low=1, high=MAX_LAYERS)
    n_head: int = spec("query heads", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=8, high=MAX_WIDTH)
    context: int = spec("longest context", unit="tokens", low=2, high=MAX_CONTEXT)
    n_kv_head: int = spec("key and value heads; 1: multi-query; 0: n_head", 0, low=0, high=MAX_HEADS)
    d_head: int = spec("width of a head; 0: d_model / n_head", 0, low=0, high=MAX_WIDTH)
    d_ffn: int = spec("width of the feed-forward layers; 0: 4 * d_model", 0, low=0, high=MAX_WIDTH)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)
    norm: Literal["pre", "post", "sandwich"] = spec("norm before each sub-layer, after it, or both", "pre")
    norm_kind: Literal["layer", "rms"] = spec("layer norm or root-mean-square norm", "rms")
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu", "relu_squared"] = spec(
        "of feed-forward layers", "swiglu"
    )
    positions: Literal["none", "sinusoidal", "learned", "rotary", "alibi", "relative"] = spec(
        "added to the embedding (sinusoidal, learned), or seen by attention (the others)", "rotary"
    )
    rope_theta: float = spec("base of the rotary wavelengths", 10000.0, above=1, high=1e12)
    window: int = spec("positions a token sees, itself included; 0: all", 0, unit="tokens", low=0, high=MAX_CONTEXT)
    qk_norm: bool = spec("norm queries and keys", False)
    bias: bool = spec("biases in linear layers", False)
    logit_cap: float = spec("c of c * tanh(logit / c); 0: none", 0.0, low=0, high=1e6)
    ngram_rows: int = spec(
        "rows of each table of hashed n-grams, added to the embedding; 0: none", 0, low=0, high=MAX_VOCABULARY
    )
    ngram_order: int = spec("the longest of these n-grams", 2, unit="tokens", low=2, high=4)
    tie_embeddings: bool = spec("the output matrix is the embedding", True)

    @property
    def rotary(self) -> bool:
        """Whether attention rotates queries and keys."""
        return self.positions == "rotary"

    @property
    def ffn_width(self) -> int:
        """Width of the feed-forward layers, given or by default."""
        return self.d_ffn or 4 * self.d_model

    def errors(self) -> list[str]:
        found = super().errors()
        if self.activation == "swiglu" and self.bias:
            found.append("bias: swiglu has no biases; choose another activation")
        return found

    @classmethod
    def resolved(cls, sizes: Mapping[str, Any]) -> dict[str, Any]:
        whole = super().resolved(sizes)
        return {**whole, "d_ffn": whole.get("d_ffn") or 4 * whole["d_model"]}


FAMILY = Family(
    role="causal",
    network="Decoder",
    shape=Shape,
    tiny={"n_layer": 2, "n_head": 4, "n_kv_head": 2, "d_model": 16, "d_ffn": 24, "context": 12},
    both_directions=True,
    variants=(
        {"norm": "post", "norm_kind": "layer", "activation": "gelu", "positions": "sinusoidal", "bias": True},
        {"norm": "sandwich", "activation": "relu_squared", "positions": "none", "qk_norm": True, "n_kv_head": 1},
        {"positions": "alibi", "window": 5, "logit_cap": 2.0, "n_head": 3, "d_head": 4, "n_kv_head": 0, "d_ffn": 0},
        {"positions": "relative", "activation": "relu", "bias": True, "tie_embeddings": False},
        {"positions": "learned", "window": 3, "activation": "gelu_tanh", "norm_kind": "layer", "bias": True},
        {"window": 4, "qk_norm": True, "ngram_rows": 29, "ngram_order": 3},
    ),
)
