"""The sizes and the declaration of the linear-attention family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lexmill.base.budgets import MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.common.row_sizes import Row, RowSizes
from lexmill.models.declaration import Family


@dataclass(frozen=True)
class Shape(RowSizes):
    """Blocks of a mixer with a matrix state and a SwiGLU feed-forward layer; mixers may differ from layer to layer."""

    n_layer: int = spec("blocks", low=1, high=MAX_LAYERS)
    d_ffn: int = spec("width of the feed-forward layers; 0: 4 * d_model", 0, low=0, high=MAX_WIDTH)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)
    reversible: bool = spec("the backward pass computes the blocks' inputs from their outputs", False)
    tie_embeddings: bool = spec("the output matrix is the embedding", True)

    @property
    def unlimited(self) -> bool:
        """Whether all mixers keep a state of one size; hashing needs all keys."""
        return all(self.mixer(layer) != "lsh" for layer in range(self.n_layer))

    @property
    def ffn_width(self) -> int:
        """Width of the feed-forward layers, given or by default."""
        return self.d_ffn or 4 * self.d_model

    def mixer(self, layer: int) -> Row:
        """Return the name of a layer's mixer."""
        return self.mixers[layer % len(self.mixers)]

    def errors(self) -> list[str]:
        found = super().errors()
        if self.reversible and self.dropout:
            found.append("reversible: what dropout left out would be drawn again; set dropout to 0")
        return found

    @classmethod
    def resolved(cls, sizes: Mapping[str, Any]) -> dict[str, Any]:
        whole = super().resolved(sizes)
        mixers = [whole["mixers"][layer % len(whole["mixers"])] for layer in range(whole["n_layer"])]
        return {**whole, "d_ffn": whole.get("d_ffn") or 4 * whole["d_model"], "mixers": mixers}


FAMILY = Family(
    role="causal",
    network="LinearAttention",
    shape=Shape,
    tiny={
        "n_layer": 2,
        "n_head": 2,
        "d_model": 16,
        "d_ffn": 24,
        "context": 12,
        "mixers": ("retnet",),
        "chunk": 4,
        "d_state": 3,
        "n_slot": 5,
        "n_feature": 6,
        "window": 3,
        "n_bucket": 2,
    },
    variants=(
        {"mixers": ("linear", "linear_kernel")},
        {"mixers": ("linear_normalized", "deltanet")},
        {"mixers": ("gated_rfa", "s4")},
        {"mixers": ("abc", "dfw")},
        {"mixers": ("mamba", "gla")},
        {"mixers": ("rwkv6", "hgrn2")},
        {"mixers": ("mlstm", "mamba2")},
        {"mixers": ("gsa", "gated_deltanet")},
        {"mixers": ("attention", "retnet")},
        {"mixers": ("performer", "local")},
        {"mixers": ("lsh",)},
    ),
    free=("dropout", "chunk"),
)
