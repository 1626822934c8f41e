"""The sizes and declaration of an encoder-decoder Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.common.row_sizes import Row, RowSizes
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """An encoder-decoder Transformer (Vaswani et al. 2017)."""

    encoder_layers: int = spec("encoder blocks", low=1, high=MAX_LAYERS)
    decoder_layers: int = spec("decoder blocks", low=1, high=MAX_LAYERS)
    n_head: int = spec("attention heads", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=8, high=MAX_WIDTH)
    d_ffn: int = spec("width of the feed-forward layers", low=8, high=MAX_WIDTH)
    dropout: float = spec("dropout on embeddings and residuals", 0.1, low=0, below=1)
    norm: Literal["pre", "post"] = spec("layer norm before each sub-layer or after it", "pre")
    max_positions: int = spec("longest sentence", 256, unit="tokens", low=2, high=MAX_CONTEXT)
    positions: Literal["sinusoidal", "learned", "rotary", "relative"] = spec(
        "added to the embeddings (sinusoidal, learned), or seen by self-attention (the others)", "sinusoidal"
    )
    tied: Literal["three_way", "decoder", "none"] = spec(
        "one matrix for source, target and output; one for target and output; or three", "three_way"
    )
    n_kv_head: int = spec(
        "the decoder's key and value heads, also over the source; 1: multi-query; 0: n_head", 0, low=0, high=MAX_HEADS
    )
    decoder_mixer: Literal["ssru", Row] = spec(
        "the decoder's self-attention, or the recurrence in its place: ssru, or a row of linear attention", "attention"
    )

    @property
    def kv_heads(self) -> int:
        """The decoder's key and value heads, given or by default."""
        return self.n_kv_head or self.n_head

    @property
    def embedded_positions(self) -> bool:
        """Whether positions are added to the embeddings."""
        return self.positions in ("sinusoidal", "learned")

    @property
    def rows(self) -> RowSizes:
        """The sizes of the decoder's mixers where `decoder_mixer` is a row; others than these have their defaults."""
        assert self.decoder_mixer != "ssru"
        mixers = (self.decoder_mixer,)
        return RowSizes(n_head=self.n_head, d_model=self.d_model, context=self.max_positions, mixers=mixers)

    def errors(self) -> list[str]:
        if self.d_model % self.n_head:
            return [f"d_model: {self.d_model} is not a multiple of n_head ({self.n_head})"]
        found = []
        if self.n_head % self.kv_heads:
            found.append(f"n_kv_head: {self.n_kv_head} does not divide n_head ({self.n_head})")
        if self.positions == "rotary" and self.d_model // self.n_head % 2:
            found.append("positions: rotary ones need heads of even width, and d_model / n_head is odd")
        if self.decoder_mixer not in ("ssru", "attention"):
            found += [f"decoder_mixer: {error.partition(': ')[2]}" for error in self.rows.errors()]
        return found

    @classmethod
    def resolved(cls, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {**sizes, "n_kv_head": sizes.get("n_kv_head") or sizes["n_head"]}


FAMILY = Family(
    role="encoder_decoder",
    network="Transformer",
    shape=Shape,
    tiny={"encoder_layers": 1, "decoder_layers": 1, "n_head": 2, "d_model": 16, "d_ffn": 24, "max_positions": 12},
    variants=(
        {"positions": "learned", "tied": "decoder", "norm": "post"},
        {"positions": "rotary", "n_kv_head": 1, "decoder_layers": 2},
        {"positions": "relative", "tied": "none", "encoder_layers": 2, "decoder_layers": 2},
        {"n_kv_head": 2, "n_head": 4, "decoder_mixer": "ssru", "decoder_layers": 2},
        {"positions": "relative", "decoder_mixer": "ssru", "encoder_layers": 2},
        {"decoder_mixer": "retnet", "positions": "rotary", "n_kv_head": 1},
        {"decoder_mixer": "mamba"},
        {"decoder_mixer": "gated_deltanet", "positions": "learned", "tied": "decoder"},
        {"decoder_mixer": "local"},
    ),
    model_types=("pegasus", "marian"),
    shrinking=(),
)
