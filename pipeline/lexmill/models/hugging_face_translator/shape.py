"""The sizes and declaration of encoder-decoders that `transformers` computes: Marian, NLLB (and M2M100), T5 and mT5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from lexmill.base.shown import value_text
from lexmill.base.strict import nearest, spec
from lexmill.models.declaration import Family, Sizes

ModelType = Literal["marian", "m2m_100", "t5", "mt5"]
Activation = Literal["relu", "swish", "silu", "gelu", "gelu_new", "gated-gelu", "gated-silu"]
T5_TYPES = ("t5", "mt5")

# What only some model types have, by its name there, with the default there.
_OF_BART: dict[str, bool | int | float] = {"attention_dropout": 0.0, "activation_dropout": 0.0}
_OF_T5: dict[str, bool | int | float] = {
    "d_kv": 64,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
}
OPTIONS: dict[str, dict[str, bool | int | float]] = {
    "marian": {**_OF_BART, "scale_embedding": False},
    "m2m_100": {**_OF_BART, "attention_dropout": 0.1, "scale_embedding": True},
    "t5": {**_OF_T5, "scale_decoder_outputs": True},
    "mt5": _OF_T5,
}


@dataclass(frozen=True)
class Shape(Sizes):
    """An encoder-decoder of one of the shapes that `transformers` computes."""

    model_type: ModelType = spec("the shape, as config.json names it; NLLB is m2m_100")
    encoder_layers: int = spec("encoder blocks", low=1, high=MAX_LAYERS)
    decoder_layers: int = spec("decoder blocks", low=1, high=MAX_LAYERS)
    n_head: int = spec("attention heads", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=2, high=MAX_WIDTH)
    d_ffn: int = spec("width of the feed-forward layers", low=1, high=MAX_WIDTH)
    max_positions: int = spec("longest sentence, prefix not counted", unit="tokens", low=2, high=MAX_CONTEXT)
    pad_token_id: int = spec("the padding token", low=0)
    activation: Activation = spec("activation of the feed-forward layers; only a T5's can be gated", "relu")
    dropout: float = spec("dropout on embeddings and residuals", 0.1, low=0, below=1)
    source_prefix: str = spec(
        "what the model reads before each source: its language (eng_Latn) for NLLB, `translate English to German:` for"
        " a T5, the target's language (>>deu<<) for a Marian of several",
        "",
    )
    target_prefix: str = spec("the token that each target begins with: its language (deu_Latn) for NLLB", "")
    options: Mapping[str, Any] = spec("what only this shape has, as config.json calls it", factory=dict)

    @property
    def prefixes(self) -> tuple[str, str]:
        return self.source_prefix, self.target_prefix

    @property
    def prefix_is_token(self) -> bool:
        return self.model_type not in T5_TYPES

    def option(self, name: str) -> Any:
        """Return the value of an option, or its default there."""
        return {**OPTIONS[self.model_type], **self.options}[name]

    def errors(self) -> list[str]:
        found = []
        if self.model_type not in T5_TYPES:
            if self.activation.startswith("gated-"):
                found.append(f"activation: a {self.model_type} has no gate")
            if self.d_model % self.n_head:
                found.append(f"d_model: {self.d_model} is no multiple of n_head ({self.n_head})")
            if self.model_type == "m2m_100" and self.d_model < 4:
                found.append("d_model: the positions of an m2m_100 need at least 4")
        known = OPTIONS[self.model_type]
        for name, value in self.options.items():
            if name not in known:
                found.append(f"options.{name}: a {self.model_type} has no such option{nearest(name, known)}")
            elif why := _wrong(value, known[name]):
                found.append(f"options.{name}: {value_text(value)} is {why}")
        return found

    def entry_errors(self) -> list[str]:
        if self.model_type != "m2m_100":
            return []
        side = {
            "source_prefix": "reads the language of a source before it",
            "target_prefix": "begins with its language",
        }
        return [
            f"{key}: missing: an m2m_100 {why}; write its token, as eng_Latn (NLLB) or __en__ (M2M100)"
            for key, why in side.items()
            if not getattr(self, key)
        ]

    @classmethod
    def resolved(cls, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain sizes with each option as a size of its own."""
        plain = {key: value for key, value in sizes.items() if key != "options"}
        options = {**OPTIONS.get(str(sizes.get("model_type")), {}), **(sizes.get("options") or {})}
        return {**plain, **{f"options.{name}": value for name, value in options.items()}}


def _wrong(value: Any, default: bool | int | float) -> str:
    """Say why a value is none of an option; "" where it is one."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "neither true nor false"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "no number"
    if isinstance(default, int):
        return "" if isinstance(value, int) and 2 <= value <= MAX_WIDTH else "no whole number from 2"
    return "" if 0 <= value < 1 else "not from 0 to below 1"


FAMILY = Family(
    role="encoder_decoder",
    network="HuggingFaceTranslator",
    shape=Shape,
    tiny={
        "model_type": "marian",
        "encoder_layers": 1,
        "decoder_layers": 2,
        "n_head": 2,
        "d_model": 16,
        "d_ffn": 24,
        "max_positions": 12,
        "pad_token_id": 0,
        "activation": "swish",
    },
    variants=(
        {"model_type": "m2m_100", "activation": "relu"},
        {"model_type": "t5", "activation": "relu", "options": {"d_kv": 6}},
        {"model_type": "t5", "activation": "gated-gelu", "options": {"scale_decoder_outputs": False}},
        {"model_type": "mt5", "activation": "gated-gelu"},
    ),
    model_types=("marian", "m2m_100", "t5", "mt5"),
    free=("dropout", "options.attention_dropout", "options.activation_dropout", "source_prefix", "target_prefix"),
    shrinking=("max_positions",),
    libraries=("tokenizers", "transformers"),
)
