"""The sizes and declaration of encoders that `transformers` computes; the fields are those of a BERT's config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.shown import value_text
from lexmill.base.strict import nearest, spec
from lexmill.models.declaration import Family, Sizes

ModelType = Literal["roberta", "xlm-roberta", "distilbert", "electra", "mpnet", "deberta-v2", "modernbert"]
Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh"]

# What only some model types have, by its name there, with the default there.
OPTIONS: dict[str, dict[str, bool | int | float | str]] = {
    "roberta": {"type_vocab_size": 2},
    "xlm-roberta": {"type_vocab_size": 2},
    "distilbert": {"sinusoidal_pos_embds": False},
    "electra": {"type_vocab_size": 2, "embedding_size": 128},
    "mpnet": {"relative_attention_num_buckets": 32},
    "deberta-v2": {
        "type_vocab_size": 0,
        "relative_attention": False,
        "max_relative_positions": -1,
        "position_buckets": -1,
        "pos_att_type": "",  # c2p, p2c, or both: c2p|p2c
        "position_biased_input": True,
        "share_att_key": False,
        "norm_rel_ebd": "none",
        "conv_kernel_size": 0,
        "conv_act": "tanh",
    },
    "modernbert": {
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
    },
}
_CHOICES = {
    "pos_att_type": ("", "c2p", "p2c", "c2p|p2c"),
    "norm_rel_ebd": ("none", "layer_norm"),
    "conv_act": ("tanh", "gelu", "relu"),
}
# The first position of a text: those before it are of padding.
OFFSET_TYPES = ("roberta", "xlm-roberta", "mpnet")


@dataclass(frozen=True)
class Shape(Sizes):
    """A bidirectional Transformer encoder of one of the shapes that `transformers` computes."""

    model_type: ModelType = spec("the shape, as config.json names it")
    hidden_size: int = spec("width", low=1, high=MAX_WIDTH)
    num_hidden_layers: int = spec("layers", low=1, high=MAX_LAYERS)
    num_attention_heads: int = spec("attention heads", low=1, high=MAX_HEADS)
    intermediate_size: int = spec("width of the feed-forward layers", low=1, high=MAX_WIDTH)
    max_position_embeddings: int = spec(
        "positions; roberta, xlm-roberta and mpnet keep the first pad_token_id + 1 free", low=1, high=MAX_CONTEXT
    )
    pad_token_id: int = spec("the padding token, as the positions of some shapes are counted by it", low=0)
    hidden_act: Activation = spec("activation of the feed-forward layers", "gelu")
    hidden_dropout_prob: float = spec("dropout on embeddings and residuals", 0.1, low=0, below=1)
    attention_probs_dropout_prob: float = spec("dropout on attention weights", 0.1, low=0, below=1)
    initializer_range: float = spec("standard deviation of the first weights", 0.02, low=0, high=100)
    layer_norm_eps: float = spec("added to the variance", 1e-12, above=0, high=1)
    options: Mapping[str, Any] = spec("what only this shape has, as config.json calls it", factory=dict)

    @property
    def first_position(self) -> int:
        """The position of a text's first token."""
        return self.pad_token_id + 1 if self.model_type in OFFSET_TYPES else 0

    def option(self, name: str, default: Any = None) -> Any:
        """Return the value of an option, or its default there; `default` where the model type has none."""
        return {**OPTIONS[self.model_type], **self.options}.get(name, default)

    def errors(self) -> list[str]:
        found = []
        if self.hidden_size % self.num_attention_heads:
            many = f"no multiple of num_attention_heads ({self.num_attention_heads})"
            found.append(f"hidden_size: {self.hidden_size} is {many}")
        elif self.model_type == "modernbert" and self.hidden_size // self.num_attention_heads % 2:
            found.append("hidden_size: modernbert rotates heads by pairs, so their width must be even")
        if self.max_position_embeddings <= self.first_position:
            found.append(f"max_position_embeddings: the first {self.first_position} are no positions of a text")
        if self.model_type == "distilbert" and self.layer_norm_eps != 1e-12:
            found.append("layer_norm_eps: a distilbert's is 1.0e-12")
        known = OPTIONS[self.model_type]
        for name, value in self.options.items():
            if name not in known:
                found.append(f"options.{name}: a {self.model_type} has no such option{nearest(name, known)}")
            elif why := _wrong(name, value, known[name]):
                found.append(f"options.{name}: {value_text(value)} is {why}")
        return found

    @classmethod
    def resolved(cls, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain sizes with each option as a size of its own."""
        plain = {key: value for key, value in sizes.items() if key != "options"}
        options = {**OPTIONS.get(str(sizes.get("model_type")), {}), **(sizes.get("options") or {})}
        return {**plain, **{f"options.{name}": value for name, value in options.items()}}


def _wrong(name: str, value: Any, default: bool | int | float | str) -> str:
    """Say why a value is none of an option; "" where it is one."""
    if name in _CHOICES:
        return "" if value in _CHOICES[name] else f"none of: {', '.join(filter(None, _CHOICES[name]))}"
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "neither true nor false"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "no number"
    if not isinstance(default, int):
        return "" if 1 < value < 1e12 else "not above 1 and below 1e12"
    least = min(1, default)
    return "" if isinstance(value, int) and least <= value <= MAX_WIDTH else f"no whole number from {least}"


FAMILY = Family(
    role="encoder",
    network="HuggingFaceEncoder",
    shape=Shape,
    tiny={
        "model_type": "roberta",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 14,
        "pad_token_id": 1,
    },
    model_types=("roberta", "xlm-roberta", "distilbert", "electra", "mpnet", "deberta-v2", "modernbert"),
    free=("hidden_dropout_prob", "attention_probs_dropout_prob"),
    shrinking=(),
    libraries=("tokenizers", "transformers"),
)
