"""Llama-shaped models in Hugging Face format (LlamaForCausalLM) and the Llama here: the weights under other names.

Mistral's files have the same shape and are read if no sliding window is set. Keys that change the function and are not
computed here (stretched rotary positions, biases, other activations) are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.models.common import hugging_face

MODEL_TYPE = "llama"

_ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "sliding_window": (None,),
}
_BLOCK = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.query.weight": "self_attn.q_proj.weight",
    "attention.key.weight": "self_attn.k_proj.weight",
    "attention.value.weight": "self_attn.v_proj.weight",
    "attention.output.weight": "self_attn.o_proj.weight",
    "feed_forward_norm.weight": "post_attention_layernorm.weight",
    "feed_forward.gate.weight": "mlp.gate_proj.weight",
    "feed_forward.expand.weight": "mlp.up_proj.weight",
    "feed_forward.output.weight": "mlp.down_proj.weight",
}


def _names(shape: Mapping[str, Any]) -> dict[str, str]:
    """Return every weight here -> its name there without the prefix `model.`."""
    outside = {"embedding.weight": "embed_tokens.weight", "norm.weight": "norm.weight"}
    if not shape["tie_embeddings"]:
        outside["head.weight"] = "lm_head.weight"
    return hugging_face.names(outside, _BLOCK, "layers", shape["n_layer"])


def _theta(config: Mapping[str, Any]) -> float:
    """Return the base of the rotary wavelengths; older files have it at the top, newer ones in `rope_parameters`."""
    parts: Mapping[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        parts = config.get(key) or {}
        if not isinstance(parts, Mapping):
            raise UserError(f"config.json: {key} is {value_text(parts)}; an object is expected")
        kind = parts.get("rope_type", parts.get("type", "default"))
        if kind != "default":
            found = value_text(kind)
            raise UserError(f"config.json: {key} is of type {found}; only plain rotary positions are computed here")
    share = hugging_face.number(config, "partial_rotary_factor", 1.0)
    if hugging_face.number(parts, "partial_rotary_factor", share) != 1.0:
        raise UserError("config.json: partial_rotary_factor is not 1; only whole heads are turned here")
    return hugging_face.number(parts, "rope_theta", hugging_face.number(config, "rope_theta", 10000.0))


def read_shape(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `Shape`'s fields without dropout, from config.json.

    Raises:
        UserError: a key is missing or has a value that is not computed here.
    """
    hugging_face.check(config, _ONLY)
    whole = partial(hugging_face.whole, config)
    n_head, d_model = whole("num_attention_heads"), whole("hidden_size")
    d_head = whole("head_dim", max(1, d_model // n_head))
    return {
        "n_layer": whole("num_hidden_layers"),
        "n_head": n_head,
        "n_kv_head": whole("num_key_value_heads", n_head),
        "d_model": d_model,
        "d_ffn": whole("intermediate_size"),
        "context": whole("max_position_embeddings"),
        "d_head": 0 if d_head * n_head == d_model else d_head,
        "rope_theta": _theta(config),
        "norm_eps": hugging_face.number(config, "rms_norm_eps", 1e-6),
        "tie_embeddings": bool(config.get("tie_word_embeddings", False)),
    }


def read_state(shape: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the names here.

    Raises:
        UserError: one is missing or unknown, or a tied output matrix is not the embedding.
    """
    named = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    head = named.pop("lm_head.weight", None) if shape["tie_embeddings"] else None
    state = hugging_face.renamed(named, _names(shape), ("rotary_emb.inv_freq", "score.weight"), "Llama")
    if head is not None and not head.equal(state["embedding.weight"]):
        raise UserError("'lm_head.weight' is not the embedding, though config.json says tie_word_embeddings")
    return state


def write_config(shape: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return the config.json of a LlamaForCausalLM that computes the same."""
    theta = shape["rope_theta"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": MODEL_TYPE,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "num_hidden_layers": shape["n_layer"],
        "num_attention_heads": shape["n_head"],
        "num_key_value_heads": shape["n_kv_head"],
        "hidden_size": shape["d_model"],
        "head_dim": shape.get("d_head") or shape["d_model"] // shape["n_head"],
        "intermediate_size": shape["d_ffn"],
        "max_position_embeddings": shape["context"],
        "rope_theta": theta,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "rms_norm_eps": shape["norm_eps"],
        "tie_word_embeddings": shape["tie_embeddings"],
        "vocab_size": vocab_size,
    }


def write_tensors(shape: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the names there."""
    return {
        there if here == "head.weight" else f"model.{there}": state[here].contiguous()
        for here, there in _names(shape).items()
    }


def write_classifier(
    tensors: Mapping[str, Tensor], weight: Tensor, bias: Tensor | None
) -> tuple[str, dict[str, Tensor]]:
    """Return the class there of a network under a head (L, D) on the last token's state, and its weights there.

    Raises:
        UserError: the head has a bias (L,).
    """
    if bias is not None:
        raise UserError(
            "a Llama under a head with a bias cannot be exported: in transformers neither the head nor the norm before"
            " it has one; with recipe.method: gradient it is trained without"
        )
    found = {name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"}
    return "LlamaForSequenceClassification", {**found, "score.weight": weight}
