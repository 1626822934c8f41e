"""Temporary: the shapes of the families, until they lie beside their networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from lexmill.base.strict import spec


@dataclass(frozen=True)
class GPTShape:
    """A decoder-only Transformer with learned positions, GELU and tied embeddings (Radford et al. 2018, 2019).

    Pre-norm is GPT-2 and GPT-3; post-norm, without a norm at the end, is the first GPT.
    """

    n_layer: int = spec("blocks", low=1)
    n_head: int = spec("attention heads", low=1)
    d_model: int = spec("width", low=8)
    context: int = spec("longest context", unit="tokens", low=2)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)
    d_head: int = spec("width of a head; 0: d_model / n_head", 0, low=0)
    norm: Literal["pre", "post"] = spec("layer norm before each sub-layer or after it", "pre")
    activation: Literal["gelu_tanh", "gelu"] = spec("GELU in its tanh form (GPT-2), or exact", "gelu_tanh")

    def faults(self) -> list[str]:
        return _head_faults(self.d_model, self.n_head, self.d_head)


@dataclass(frozen=True)
class LlamaShape:
    """A decoder-only Transformer with RMSNorm, rotary positions, SwiGLU and grouped queries (Touvron et al. 2023)."""

    n_layer: int = spec("blocks", low=1)
    n_head: int = spec("query heads", low=1)
    n_kv_head: int = spec("key and value heads; each serves n_head / n_kv_head query heads", low=1)
    d_model: int = spec("width", low=8)
    d_ffn: int = spec("width of the feed-forward layers", low=8)
    context: int = spec("longest context", unit="tokens", low=2)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)
    d_head: int = spec("width of a head; 0: d_model / n_head", 0, low=0)
    rope_theta: float = spec("base of the rotary wavelengths", 10000.0, above=0)
    norm_eps: float = spec("added to the mean square", 1e-5, above=0)
    tie_embeddings: bool = spec("the output matrix is the embedding", True)

    def faults(self) -> list[str]:
        found = _head_faults(self.d_model, self.n_head, self.d_head)
        if self.n_head % self.n_kv_head:
            found.append(f"n_kv_head: {self.n_kv_head} does not divide n_head ({self.n_head})")
        if not found and (self.d_head or self.d_model // self.n_head) % 2:
            found.append("d_head: rotary positions need an even head width")
        return found


@dataclass(frozen=True)
class LSTMShape:
    """A stack of long short-term memory layers (Hochreiter and Schmidhuber 1997; Zaremba et al. 2014)."""

    n_layer: int = spec("layers", low=1)
    d_model: int = spec("width of the embedding and of each layer's state", low=8)
    context: int = spec("tokens through which a training step looks back", unit="tokens", low=2)
    dropout: float = spec("dropout on embeddings and between layers", 0.0, low=0, below=1)
    tie_embeddings: bool = spec("the output matrix is the embedding (Press and Wolf 2017)", True)


def _head_faults(d_model: int, n_head: int, d_head: int) -> list[str]:
    if d_head == 0 and d_model % n_head:
        return [f"d_model: {d_model} is not a multiple of n_head ({n_head})"]
    return []


@dataclass(frozen=True)
class TransformerShape:
    """An encoder-decoder Transformer (Vaswani et al. 2017); one embedding for source, target and output."""

    encoder_layers: int = spec("encoder blocks", low=1)
    decoder_layers: int = spec("decoder blocks", low=1)
    n_head: int = spec("attention heads", low=1)
    d_model: int = spec("width", low=8)
    d_ffn: int = spec("width of the feed-forward layers", low=8)
    dropout: float = spec("dropout on embeddings and residuals", 0.1, low=0, below=1)
    norm: Literal["pre", "post"] = spec("layer norm before each sub-layer or after it", "pre")
    max_positions: int = spec("longest sentence", 256, unit="tokens", low=2)

    def faults(self) -> list[str]:
        if self.d_model % self.n_head:
            return [f"d_model: {self.d_model} is not a multiple of n_head ({self.n_head})"]
        return []


def unlike(
    family: str, shape: Mapping[str, Any], found_family: str, found_shape: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Why a model cannot start from the weights of another: the fields that differ -> (the other's value, its own).

    Another dropout and a shorter context are no reason: a context gives its first positions. Another family alone is
    told, for its sizes mean other things.
    """
    if family != found_family:
        return {"family": (found_family, family)}
    here, there = _whole(family, shape), _whole(family, found_shape)
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(here.keys() | there.keys()):
        other, own = there.get(key), here.get(key)
        shorter = key == "context" and int(own or 0) <= int(other or 0)
        if own != other and not shorter:
            found[key] = (other, own)
    return found


def _whole(family: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    """A shape without dropout, with what older models do not name, and with the width of a head as it comes out."""
    of = SHAPES[family]
    usual = {each.name: each.default for each in fields(of) if each.default is not MISSING}
    whole = {key: value for key, value in {**usual, **shape}.items() if key != "dropout"}
    if "n_head" in whole:
        whole["d_head"] = whole.get("d_head") or whole["d_model"] // whole["n_head"]
    return whole


def start_fault(name: str, path: str, differing: Mapping[str, tuple[Any, Any]]) -> str:
    """The sentence that says it of `models.<name>` and what its `start` names."""
    there, here = (", ".join(f"{key} {values[i]}" for key, values in differing.items()) for i in (0, 1))
    rule = "the family must be the same" if "family" in differing else "only dropout may differ, and context be shorter"
    return f"models.{name}.start: {path} has {there}, this model has {here}; {rule}"


@dataclass(frozen=True)
class BertShape:
    """Sizes of the checkpoint that it starts from."""

    dropout: float = spec("dropout before the head", 0.1, low=0, below=1)


SHAPES = {"gpt": GPTShape, "llama": LlamaShape, "lstm": LSTMShape, "transformer": TransformerShape, "bert": BertShape}
ROLES = {"gpt": "causal", "llama": "causal", "lstm": "causal", "transformer": "encoder_decoder", "bert": "encoder"}
