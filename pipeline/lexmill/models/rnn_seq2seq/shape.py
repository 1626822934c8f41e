"""The sizes and declaration of a recurrent encoder-decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes

Score = Literal["none", "content", "additive", "location", "general", "dot", "scaled_dot"]


@dataclass(frozen=True)
class Shape(Sizes):
    """A recurrent encoder-decoder with attention (Bahdanau et al. 2015; Luong et al. 2015) or one context vector."""

    encoder_layers: int = spec("encoder layers", low=1, high=MAX_LAYERS)
    decoder_layers: int = spec("decoder layers", low=1, high=MAX_LAYERS)
    d_embedding: int = spec("width of the embedding, and of what the output projection reads", low=1, high=MAX_WIDTH)
    d_model: int = spec("width of the states, both directions of the encoder together", low=2, high=MAX_WIDTH)
    cell: Literal["elman", "lstm", "gru"] = spec("what reads and writes", "lstm")
    bidirectional: bool = spec("the encoder reads from both ends", True)
    reverse_source: bool = spec("an encoder of one direction reads the source from its end", False)
    attention: Score = spec(
        "how a decoder state is compared with the source's; none: the source is one vector", "additive"
    )
    input_feeding: bool = spec("each step also reads what the one before gave the output projection", False)
    dropout: float = spec("dropout on embeddings, between layers and before the output", 0.1, low=0, below=1)
    max_positions: int = spec("longest sentence", 256, unit="tokens", low=2, high=MAX_CONTEXT)

    def errors(self) -> list[str]:
        found = []
        if self.bidirectional and self.d_model % 2:
            found.append(f"d_model: {self.d_model} is odd; each direction of the encoder has half of it")
        if self.bidirectional and self.reverse_source:
            found.append("reverse_source: a bidirectional encoder reads from both ends already; set one to false")
        return found


FAMILY = Family(
    role="encoder_decoder",
    network="RNNSeq2Seq",
    shape=Shape,
    tiny={"encoder_layers": 2, "decoder_layers": 2, "d_embedding": 10, "d_model": 12, "max_positions": 12},
    variants=(
        *({"attention": score} for score in ("none", "content", "location", "general", "dot", "scaled_dot")),
        {"cell": "gru", "input_feeding": True},
        {"cell": "elman", "bidirectional": False, "reverse_source": True},
        {"attention": "none", "input_feeding": True, "bidirectional": False},
    ),
    shrinking=(),
)
