"""GPT-2 in Hugging Face format (GPT2LMHeadModel) and the GPT here: the same function, the weights under other names.

There a projection is a `Conv1D`, whose matrix is transposed, (in, out), and queries, keys and values follow each other
whole; here they are ordered head by head. Names may have the prefix `transformer.` or none; causal masks saved as
buffers are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.models.common import hugging_face
from lexmill.models.common.attention import fuse_projections, split_projection

MODEL_TYPE = "gpt2"

_ONLY: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh", "gelu"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
}
_BLOCK = {
    "attention_norm": "ln_1",
    "attention.query_key_value": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward.expand": "mlp.c_fc",
    "feed_forward.output": "mlp.c_proj",
}
_IGNORED = (".attn.bias", ".attn.masked_bias", "score.weight")
_LAST_BIAS, _SHIFT_TOLERANCE = "transformer.ln_f.bias", 2e-5
_TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def _names(n_layer: int) -> dict[str, str]:
    """Return every weight here -> its name there without prefix."""
    block = {f"{here}.{part}": f"{there}.{part}" for here, there in _BLOCK.items() for part in ("weight", "bias")}
    outside = {"embedding.weight": "wte.weight", "positions.weight": "wpe.weight"}
    outside |= {"norm.weight": "ln_f.weight", "norm.bias": "ln_f.bias"}
    return hugging_face.names(outside, block, "h", n_layer)


def read_shape(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `Shape`'s fields without dropout, from config.json.

    Raises:
        UserError: a key is missing or has a value that is not computed here.
    """
    hugging_face.check(config, _ONLY)
    n_head, d_model = hugging_face.whole(config, "n_head"), hugging_face.whole(config, "n_embd")
    if config.get("n_inner") not in (None, 4 * d_model):
        inner = value_text(config["n_inner"])
        raise UserError(f"config.json: n_inner is {inner}; only 4 * n_embd is computed here")
    context = hugging_face.whole(config, "n_positions" if config.get("n_positions") else "n_ctx")
    n_layer = hugging_face.whole(config, "n_layer")
    activation = "gelu" if config.get("activation_function") == "gelu" else "gelu_tanh"
    sizes = {"n_layer": n_layer, "n_head": n_head, "d_model": d_model, "context": context, "d_head": 0}
    return {**sizes, "norm": "pre", "activation": activation}


def read_state(shape: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the names here.

    Raises:
        UserError: one is missing or unknown, or the output matrix is not the embedding.
    """
    named = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    head = named.pop("lm_head.weight", None)
    state = hugging_face.renamed(named, _names(shape["n_layer"]), _IGNORED, "GPT-2")
    for here, there in _names(shape["n_layer"]).items():
        tensor = state[here].t() if there.endswith(_TRANSPOSED) else state[here]
        if ".query_key_value." in here:
            query, key, value = tensor.chunk(3)
            tensor = fuse_projections(query, key, value, shape["n_head"])
        state[here] = tensor.contiguous()
    if head is not None and not head.equal(state["embedding.weight"]):
        raise UserError("'lm_head.weight' is not the embedding; only a tied output matrix is computed here")
    return state


def write_config(shape: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return the config.json of a GPT2LMHeadModel that computes the same.

    Raises:
        UserError: GPT-2 has no such shape.
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
    """Return the weights under the names there."""
    found = {}
    for here, there in _names(shape["n_layer"]).items():
        tensor = state[here]
        if ".query_key_value." in here:
            tensor = torch.cat(split_projection(tensor, shape["n_head"]))
        found[f"transformer.{there}"] = (tensor.t() if there.endswith(_TRANSPOSED) else tensor).contiguous()
    return found


def write_classifier(
    tensors: Mapping[str, Tensor], weight: Tensor, bias: Tensor | None
) -> tuple[str, dict[str, Tensor]]:
    """Return the class there of a network under a head on the last token's state, and its weights there.

    The head there has no bias. One here goes into the bias of the last norm: the smallest shift of all states which
    adds as much to the logits.

    Args:
        tensors: those of `write_tensors`.
        weight, bias: of the head, (L, D) and (L,).

    Raises:
        UserError: no shift does.
    """
    found = {**tensors, "score.weight": weight}
    if bias is not None:
        matrix, wanted = weight.double(), bias.double()[:, None]
        shift = torch.linalg.lstsq(matrix, wanted, driver="gelsd").solution[:, 0].float()
        if not (weight @ shift - bias).abs().max() <= _SHIFT_TOLERANCE:
            raise UserError(
                "the bias of this head cannot be exported: in transformers the head of a GPT-2 has none, and no"
                " bias of the norm before it does the same"
            )
        found[_LAST_BIAS] = tensors[_LAST_BIAS] + shift
    return "GPT2ForSequenceClassification", found
