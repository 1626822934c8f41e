"""The sizes and declaration of a convolutional encoder-decoder."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_CONTEXT, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """A convolutional encoder-decoder: gated linear units, attention in each layer (Gehring et al. 2017)."""

    encoder_layers: int = spec("encoder blocks", low=1, high=MAX_LAYERS)
    decoder_layers: int = spec("decoder blocks", low=1, high=MAX_LAYERS)
    d_embedding: int = spec("width of the embedding, of attention and of the output projection", low=1, high=MAX_WIDTH)
    d_model: int = spec("width of the blocks", low=1, high=MAX_WIDTH)
    kernel: int = spec("tokens that a block sees at once; odd", 3, unit="tokens", low=1, high=99)
    dropout: float = spec("dropout on embeddings, before each convolution and the output", 0.1, low=0, below=1)
    max_positions: int = spec("longest sentence", 256, unit="tokens", low=2, high=MAX_CONTEXT)

    def errors(self) -> list[str]:
        return [] if self.kernel % 2 else [f"kernel: {self.kernel} is even; the token in the middle needs an odd one"]


FAMILY = Family(
    role="encoder_decoder",
    network="ConvSeq2Seq",
    shape=Shape,
    tiny={"encoder_layers": 3, "decoder_layers": 2, "d_embedding": 10, "d_model": 12, "max_positions": 12},
    variants=({"kernel": 1, "encoder_layers": 1}, {"kernel": 5}),
    shrinking=(),
)
