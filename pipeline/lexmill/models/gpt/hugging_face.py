"""GPT-2 in Hugging Face format (GPT2LMHeadModel) and the GPT here: the same function, the weights under other names.

There a projection is a `Conv1D`, whose matrix stands the other way round, (in, out) for (out, in) here, and queries,
keys and values follow each other whole, where here they lie head by head. Names may have the prefix `transformer.` or
none; causal masks saved as buffers are no weights and are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.models.common.attention import fuse_projections, split_projection

MODEL_TYPE = "gpt2"

# Keys of config.json whose other values make another function than the one computed here.
_ONLY: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh", "gelu"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
}
_BLOCK = {  # here: (there, whether it is a matrix that stands the other way round)
    "attention_norm.weight": ("ln_1.weight", False),
    "attention_norm.bias": ("ln_1.bias", False),
    "attention.query_key_value.weight": ("attn.c_attn.weight", True),
    "attention.query_key_value.bias": ("attn.c_attn.bias", False),
    "attention.output.weight": ("attn.c_proj.weight", True),
    "attention.output.bias": ("attn.c_proj.bias", False),
    "feed_forward_norm.weight": ("ln_2.weight", False),
    "feed_forward_norm.bias": ("ln_2.bias", False),
    "feed_forward.expand.weight": ("mlp.c_fc.weight", True),
    "feed_forward.expand.bias": ("mlp.c_fc.bias", False),
    "feed_forward.output.weight": ("mlp.c_proj.weight", True),
    "feed_forward.output.bias": ("mlp.c_proj.bias", False),
}


def _names(n_layer: int) -> dict[str, tuple[str, bool]]:
    """Every weight here -> (its name there without prefix, whether it stands the other way round)."""
    found = {
        "embedding.weight": ("wte.weight", False),
        "positions.weight": ("wpe.weight", False),
        "norm.weight": ("ln_f.weight", False),
        "norm.bias": ("ln_f.bias", False),
    }
    for layer in range(n_layer):
        for here, (there, turned) in _BLOCK.items():
            found[f"blocks.{layer}.{here}"] = (f"h.{layer}.{there}", turned)
    return found


def read_shape(config: Mapping[str, Any]) -> dict[str, Any]:
    """`GPTShape`'s fields without dropout, from config.json.

    Raises:
        UserError: a key with a value that is not computed here, or that is missing.
    """
    for key, computed in _ONLY.items():
        if config.get(key, computed[0]) not in computed:
            raise UserError(f"config.json: {key} is {config[key]!r}; only {computed[0]!r} is computed here")
    try:
        n_head, d_model = int(config["n_head"]), int(config["n_embd"])
        if config.get("n_inner") not in (None, 4 * d_model):
            raise UserError(f"config.json: n_inner is {config['n_inner']!r}; only 4 * n_embd is computed here")
        context = int(config.get("n_positions") or config["n_ctx"])
        n_layer = int(config["n_layer"])
    except KeyError as error:
        raise UserError(f"config.json has no {error}") from None
    activation = "gelu" if config.get("activation_function") == "gelu" else "gelu_tanh"
    sizes = {"n_layer": n_layer, "n_head": n_head, "d_model": d_model, "context": context, "d_head": 0}
    return {**sizes, "norm": "pre", "activation": activation}


def read_state(shape: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under the names here.

    Raises:
        UserError: one is missing or unknown, or the output matrix is not the embedding.
    """
    named = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    head = named.pop("lm_head.weight", None)
    state, missing = {}, []
    for here, (there, turned) in _names(shape["n_layer"]).items():
        if there not in named:
            missing.append(there)
        else:
            tensor = named.pop(there)
            tensor = tensor.t() if turned else tensor
            if ".query_key_value." in here:
                query, key, value = tensor.chunk(3)
                tensor = fuse_projections(query, key, value, shape["n_head"])
            state[here] = tensor.contiguous()
    left = [name for name in named if not name.endswith((".attn.bias", ".attn.masked_bias"))]
    if missing or left:
        told = [f"'{name}' is missing" for name in missing] + [f"'{name}' is unknown" for name in left]
        raise UserError(f"the weights are not those of a GPT-2: {'; '.join(told[:5])}")
    if head is not None and not head.equal(state["embedding.weight"]):
        raise UserError("'lm_head.weight' is not the embedding; only a tied output matrix is computed here")
    return state


def write_config(shape: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """The config.json of a GPT2LMHeadModel that computes the same.

    Raises:
        UserError: a shape that GPT-2 has not.
    """
    if shape.get("norm", "pre") != "pre":
        raise UserError("a post-norm GPT has no counterpart in transformers; only norm: pre can be exported")
    width = shape["n_head"] * (shape.get("d_head") or shape["d_model"] // shape["n_head"])
    if width != shape["d_model"]:
        raise UserError(
            f"n_head * d_head is {width}, but d_model {shape['d_model']}: GPT-2 in transformers has them equal, so this"
            " model cannot be exported"
        )
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": MODEL_TYPE,
        "activation_function": "gelu" if shape.get("activation") == "gelu" else "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "n_layer": shape["n_layer"],
        "n_head": shape["n_head"],
        "n_embd": shape["d_model"],
        "n_inner": None,
        "n_positions": shape["context"],
        "vocab_size": vocab_size,
        "attn_pdrop": 0.0,
        "embd_pdrop": shape.get("dropout", 0.0),
        "resid_pdrop": shape.get("dropout", 0.0),
        "tie_word_embeddings": True,
    }


def write_tensors(shape: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under the names there."""
    found = {}
    for here, (there, turned) in _names(shape["n_layer"]).items():
        tensor = state[here]
        if ".query_key_value." in here:
            tensor = torch.cat(split_projection(tensor, shape["n_head"]))
        found[f"transformer.{there}"] = (tensor.t() if turned else tensor).contiguous()
    return found
