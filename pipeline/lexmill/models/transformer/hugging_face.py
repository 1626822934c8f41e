"""The Transformer in Hugging Face format: a Pegasus in pre-norm, a Marian in post-norm, with the same function.

Both have the sines of the positions first and then the cosines, where they alternate here (as in the paper). So all
features of the residual stream come in that order there: each matrix that reads the stream has its columns reordered,
each that writes to it its rows. Dropout is the only size that the weights do not fix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.models.common import hugging_face
from lexmill.models.common.attention import fuse_projections, split_projection
from lexmill.models.transformer.layers import sinusoids

PRE_NORM, POST_NORM = "pegasus", "marian"
_CLASSES = {PRE_NORM: "PegasusForConditionalGeneration", POST_NORM: "MarianMTModel"}
_ONLY: dict[str, tuple[Any, ...]] = {
    "activation_function": ("relu",),
    "scale_embedding": (True,),
    "tie_word_embeddings": (True,),
    "share_encoder_decoder_embeddings": (True,),
}
_OPTIONS = {"positions": "sinusoidal", "tied": "three_way", "decoder_mixer": "attention"}  # as exported
_TENSORS = ("weight", "bias")  # of each module
Side = Literal["reads", "writes"]
_IGNORED = (
    "embed_positions.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
    "final_logits_bias",
)

# Parts of a layer here: their names there, and on which side of the matrix the stream is.
_FUSED: dict[str, tuple[tuple[str, ...], Side]] = {
    "attention.query_key_value": (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "reads"),
    "attention.output": (("self_attn.out_proj",), "writes"),
    "around_attention.norm": (("self_attn_layer_norm",), "writes"),
    "feed_forward.expand": (("fc1",), "reads"),
    "feed_forward.output": (("fc2",), "writes"),
    "around_feed_forward.norm": (("final_layer_norm",), "writes"),
}
_CROSS: dict[str, tuple[tuple[str, ...], Side]] = {
    "cross.query": (("encoder_attn.q_proj",), "reads"),
    "cross.key_value": (("encoder_attn.k_proj", "encoder_attn.v_proj"), "reads"),
    "cross.output": (("encoder_attn.out_proj",), "writes"),
    "around_cross.norm": (("encoder_attn_layer_norm",), "writes"),
}


def _parts(shape: Mapping[str, Any]) -> dict[str, tuple[tuple[str, ...], Side]]:
    """Return every module here -> the modules there that hold its weight and bias, and the side of the stream."""
    found: dict[str, tuple[tuple[str, ...], Side]] = {}
    for stack, layers in (("encoder", shape["encoder_layers"]), ("decoder", shape["decoder_layers"])):
        inside = _FUSED if stack == "encoder" else _FUSED | _CROSS
        for i in range(layers):
            for here, (there, side) in inside.items():
                found[f"{stack}.{i}.{here}"] = (tuple(f"model.{stack}.layers.{i}.{name}" for name in there), side)
        if shape["norm"] == "pre":
            found[f"{stack}_norm"] = ((f"model.{stack}.layer_norm",), "writes")
    return found


def _sines_first(width: int) -> Tensor:
    """Return for each feature there its place here, (D,)."""
    places = torch.arange(width)
    return torch.cat([places[0::2], places[1::2]])


def _reordered(tensor: Tensor, order: Tensor, side: Side) -> Tensor:
    """Return a weight or bias with the features of the stream in another order."""
    if side == "writes":
        return tensor[order]
    return tensor[:, order] if tensor.ndim == 2 else tensor


def read_shape(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `Shape`'s fields without dropout, from config.json.

    Raises:
        UserError: a key is missing or has a value that is not computed here.
    """
    hugging_face.check(config, _ONLY)
    both = {}
    for ours, theirs in (("n_head", "attention_heads"), ("d_ffn", "ffn_dim")):
        sizes = [hugging_face.whole(config, f"{stack}_{theirs}") for stack in ("encoder", "decoder")]
        if sizes[0] != sizes[1]:
            raise UserError(
                f"config.json: encoder_{theirs} is {sizes[0]} and decoder_{theirs} {sizes[1]}; only equal ones are"
                " computed here"
            )
        both[ours] = sizes[0]
    return {
        "encoder_layers": hugging_face.whole(config, "encoder_layers"),
        "decoder_layers": hugging_face.whole(config, "decoder_layers"),
        **both,
        "d_model": hugging_face.whole(config, "d_model"),
        "norm": "pre" if config["model_type"] == PRE_NORM else "post",
        "max_positions": hugging_face.whole(config, "max_position_embeddings"),
    }


def read_state(shape: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the names here.

    Raises:
        UserError: one is missing or unknown, or the output has a bias.
    """
    bias = tensors.get("final_logits_bias")
    if bias is not None and bool(bias.any()):
        raise UserError("'final_logits_bias' is not zero; only an output without bias is computed here")
    parts = _parts(shape)
    named = {f"{name}.{one}": f"{name}.{one}" for there, _ in parts.values() for name in there for one in _TENSORS}
    named["model.shared.weight"] = "model.shared.weight"
    found = hugging_face.renamed(tensors, named, _IGNORED, _CLASSES[PRE_NORM if shape["norm"] == "pre" else POST_NORM])
    alternating = _sines_first(shape["d_model"]).argsort()
    state = {"embedding.weight": found["model.shared.weight"][:, alternating].contiguous()}
    for here, (there, side) in parts.items():
        for tensor in _TENSORS:
            each = [_reordered(found[f"{name}.{tensor}"], alternating, side) for name in there]
            fused = len(each) == 3
            joined = fuse_projections(each[0], each[1], each[2], shape["n_head"]) if fused else torch.cat(each)
            state[f"{here}.{tensor}"] = joined.contiguous()
    return state


def write_config(shape: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return the config.json of a Pegasus or Marian that computes the same.

    Raises:
        UserError: the shape has an option that neither of them has.
    """
    others = [f"{key}: {shape[key]}" for key, value in _OPTIONS.items() if shape.get(key, value) != value]
    if shape.get("n_kv_head", 0) not in (0, shape["n_head"]):
        others.append(f"n_kv_head: {shape['n_kv_head']}")
    if others:
        raise UserError(
            f"no other program has such a network with {' and '.join(others)}; only sinusoidal positions, one embedding"
            " and full attention can be exported"
        )
    model_type = PRE_NORM if shape["norm"] == "pre" else POST_NORM
    stacks = {}
    for stack in ("encoder", "decoder"):
        stacks[f"{stack}_layers"] = shape[f"{stack}_layers"]
        stacks[f"{stack}_attention_heads"] = shape["n_head"]
        stacks[f"{stack}_ffn_dim"] = shape["d_ffn"]
        stacks[f"{stack}_layerdrop"] = 0.0
    return {
        "architectures": [_CLASSES[model_type]],
        "model_type": model_type,
        **stacks,
        "d_model": shape["d_model"],
        "vocab_size": vocab_size,
        "max_position_embeddings": shape["max_positions"],
        "activation_function": "relu",
        "dropout": shape.get("dropout", 0.0),
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "forced_eos_token_id": None,
    }


def write_tensors(shape: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the names there."""
    order = _sines_first(shape["d_model"])
    embedding = state["embedding.weight"][:, order].contiguous()
    found = {"model.shared.weight": embedding, "final_logits_bias": torch.zeros(1, len(embedding))}
    for stack in ("encoder", "decoder"):  # computed, but a Pegasus that does not find them says so
        places = sinusoids(shape["max_positions"], shape["d_model"])[:, order].contiguous()
        found[f"model.{stack}.embed_positions.weight"] = places
    for here, (there, side) in _parts(shape).items():
        for tensor in _TENSORS:
            whole = state[f"{here}.{tensor}"]
            split = split_projection(whole, shape["n_head"]) if len(there) == 3 else whole.chunk(len(there))
            for name, each in zip(there, split, strict=True):
                found[f"{name}.{tensor}"] = _reordered(each, order, side).contiguous()
    return found
