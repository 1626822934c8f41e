"""The sizes and declaration of sequence to sequence without an encoder."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.common.head_sizes import GroupedHeadSizes
from lexmill.models.declaration import Family


@dataclass(frozen=True)
class Shape(GroupedHeadSizes):
    """A decoder-only Transformer that reads source and target as one sequence; the parts are Llama's."""

    n_layer: int = spec("blocks", low=1, high=MAX_LAYERS)
    n_head: int = spec("query heads", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=8, high=MAX_WIDTH)
    d_ffn: int = spec("width of the feed-forward layers", low=8, high=MAX_WIDTH)
    n_kv_head: int = spec("key and value heads; 1: multi-query; 0: n_head", 0, low=0, high=MAX_HEADS)
    d_head: int = spec("width of a head; 0: d_model / n_head", 0, low=0, high=MAX_WIDTH)
    dropout: float = spec("dropout on embeddings and residuals", 0.1, low=0, below=1)
    prefix: bool = spec("source tokens see those after them too (a prefix language model)", True)
    rope_theta: float = spec("base of the rotary wavelengths", 10000.0, above=1, high=1e12)
    max_positions: int = spec("longest sentence", 256, unit="tokens", low=2, high=MAX_CONTEXT)


FAMILY = Family(
    role="encoder_decoder",
    network="DecoderTranslator",
    shape=Shape,
    tiny={"n_layer": 2, "n_head": 4, "d_model": 16, "d_ffn": 24, "max_positions": 12},
    variants=({"prefix": False, "n_kv_head": 2}, {"n_layer": 1, "n_kv_head": 1, "d_head": 6}),
    shrinking=(),
)
