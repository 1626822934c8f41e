"""The sizes and declaration of a BERT encoder; the fields are those of transformers' config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"]


@dataclass(frozen=True)
class Shape(Sizes):
    """A bidirectional Transformer encoder with learned positions and post-norm (Devlin et al. 2019)."""

    hidden_size: int = spec("width", 768, low=1, high=MAX_WIDTH)
    num_hidden_layers: int = spec("layers", 12, low=1, high=MAX_LAYERS)
    num_attention_heads: int = spec("attention heads", 12, low=1, high=MAX_HEADS)
    intermediate_size: int = spec("width of the feed-forward layers", 3072, low=1, high=MAX_WIDTH)
    hidden_act: Activation = spec("activation of the feed-forward layers", "gelu")
    hidden_dropout_prob: float = spec("dropout on embeddings and residuals", 0.1, low=0, below=1)
    attention_probs_dropout_prob: float = spec("dropout on attention weights", 0.1, low=0, below=1)
    max_position_embeddings: int = spec("longest text", 512, unit="tokens", low=1, high=MAX_CONTEXT)
    type_vocab_size: int = spec("kinds of segments", 2, low=1, high=MAX_HEADS)
    initializer_range: float = spec("standard deviation of the first weights", 0.02, low=0, high=100)
    layer_norm_eps: float = spec("added to the variance", 1e-12, above=0, high=1)
    pad_token_id: int = spec("the padding token, whose embedding starts at zero", 0, low=0, high=MAX_CONTEXT)

    def errors(self) -> list[str]:
        if self.hidden_size % self.num_attention_heads:
            return [
                f"hidden_size: {self.hidden_size} is no multiple of num_attention_heads ({self.num_attention_heads})"
            ]
        return []


FAMILY = Family(
    role="encoder",
    network="Bert",
    shape=Shape,
    tiny={
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 12,
    },
    model_types=("bert",),
    free=("hidden_dropout_prob", "attention_probs_dropout_prob"),
    shrinking=(),
    libraries=("tokenizers",),
)
