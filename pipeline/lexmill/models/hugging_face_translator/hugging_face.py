"""In Hugging Face format: the weights' names are those there, below `network.`, but the output's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.base.outside import parsing
from lexmill.models.common.hugging_face import check, number, whole
from lexmill.models.hugging_face_translator.shape import OPTIONS, T5_TYPES

# Of each model type: its class with an output, and the prefix of all else there.
CLASSES = {
    "marian": ("MarianMTModel", "model."),
    "m2m_100": ("M2M100ForConditionalGeneration", "model."),
    "t5": ("T5ForConditionalGeneration", ""),
    "mt5": ("MT5ForConditionalGeneration", ""),
}
_PREFIX, _SHARED, _HEAD, _BIAS = "network.", "network.shared.weight", "head.weight", "output_bias"
_LENGTHS = {"t5": 512, "mt5": 1024}  # that they were trained with (Raffel et al. 2020, Xue et al. 2021)
# Copies of the shared embedding, fixed positions, and a bias that no T5 reads.
_IGNORED = (
    "embed_tokens.weight",
    "embed_positions.weight",
    "embed_positions.weights",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
)


def configuration(model_type: str, values: Mapping[str, Any]) -> Any:
    """Return the configuration of `transformers` of such a model."""
    import transformers

    return getattr(transformers, f"{CLASSES[model_type][0].removesuffix('MTModel').partition('For')[0]}Config")(
        **values
    )


def separate_head(shape: Mapping[str, Any]) -> bool:
    """Whether the output has a matrix of its own: an mT5's, and a T5's whose outputs are not scaled (version 1.1)."""
    options = {**OPTIONS[shape["model_type"]], **shape["options"]}
    return shape["model_type"] == "mt5" or not options.get("scale_decoder_outputs", True)


def read_shape(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `Shape`'s fields without prefixes, from config.json; missing ones have the default of `transformers`.

    Raises:
        UserError: a key has a value that is not computed here.
    """
    model_type = config["model_type"]
    with parsing("config.json cannot be read"):
        there = configuration(model_type, {key: value for key, value in config.items() if key != "model_type"})
    options = {name: getattr(there, name) for name in OPTIONS[model_type]}
    if model_type in T5_TYPES:
        sizes = {
            "encoder_layers": there.num_layers,
            "decoder_layers": there.num_decoder_layers,
            "n_head": there.num_heads,
            "d_ffn": there.d_ff,
            "max_positions": whole(config, "n_positions", _LENGTHS[model_type]),
            "activation": there.feed_forward_proj,
            "dropout": number(config, "dropout_rate", 0.1),
        }
    else:
        if model_type == "marian":
            only = {"share_encoder_decoder_embeddings": (True,), "decoder_vocab_size": (there.vocab_size, None)}
            check(config, {"tie_word_embeddings": (True,), **only})
        for key in ("attention_heads", "ffn_dim"):
            check(config, {f"decoder_{key}": (getattr(there, f"encoder_{key}"),)})
        sizes = {
            "encoder_layers": there.encoder_layers,
            "decoder_layers": there.decoder_layers,
            "n_head": there.encoder_attention_heads,
            "d_ffn": there.encoder_ffn_dim,
            "max_positions": there.max_position_embeddings,
            "activation": there.activation_function,
            "dropout": there.dropout,
        }
    pad = {"pad_token_id": there.pad_token_id}
    return {"model_type": model_type, **sizes, "d_model": there.d_model, **pad, "options": options}


def write_config(shape: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return the config.json of the same network with its output."""
    model_type, layers = shape["model_type"], (shape["encoder_layers"], shape["decoder_layers"])
    options = {**OPTIONS[model_type], **shape["options"]}
    if model_type in T5_TYPES:
        sizes = {
            "num_layers": layers[0],
            "num_decoder_layers": layers[1],
            "num_heads": shape["n_head"],
            "d_ff": shape["d_ffn"],
            "n_positions": shape["max_positions"],
            "feed_forward_proj": shape["activation"],
            "dropout_rate": shape["dropout"],
            "tie_word_embeddings": not separate_head(shape),
        }
    else:
        sizes = {
            "max_position_embeddings": shape["max_positions"],
            "activation_function": shape["activation"],
            "dropout": shape["dropout"],
            "tie_word_embeddings": True,
        }
        for stack, many in zip(("encoder", "decoder"), layers, strict=True):
            heads = {f"{stack}_attention_heads": shape["n_head"], f"{stack}_ffn_dim": shape["d_ffn"]}
            sizes |= {f"{stack}_layers": many, **heads, f"{stack}_layerdrop": 0.0}
    return {
        **sizes,
        **options,
        "architectures": [CLASSES[model_type][0]],
        "model_type": model_type,
        "d_model": shape["d_model"],
        "pad_token_id": shape["pad_token_id"],
        "decoder_start_token_id": shape["pad_token_id"],  # an export writes the tokenizer's
        "vocab_size": vocab_size,
    }


def read_state(shape: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the names here.

    Raises:
        UserError: the output has another matrix than the embedding, where both are one.
    """
    prefix = CLASSES[shape["model_type"]][1]
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name not in ("lm_head.weight", "final_logits_bias") and not name.endswith(_IGNORED):
            found[f"{_PREFIX}{name.removeprefix(prefix)}"] = tensor
    copies = (f"{prefix}decoder.embed_tokens.weight", f"{prefix}encoder.embed_tokens.weight", "lm_head.weight")
    shared = found.get(_SHARED, next((tensors[name] for name in copies if name in tensors), None))
    if shared is None:
        raise UserError("the weights are not those of an encoder-decoder: 'shared.weight' is missing")
    found[_SHARED], head = shared, tensors.get("lm_head.weight", shared)
    if separate_head(shape):
        found[_HEAD] = head.clone()
    elif not torch.equal(head, shared):
        raise UserError("'lm_head.weight' differs from the embedding; config.json says that both are one")
    if shape["model_type"] == "marian":
        bias = tensors.get("final_logits_bias")
        found[_BIAS] = torch.zeros(len(shared)) if bias is None else bias[0].clone()
    return found


def write_tensors(shape: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the names there."""
    prefix, there = CLASSES[shape["model_type"]][1], {_HEAD: "lm_head.weight", _BIAS: "final_logits_bias"}
    return {
        there.get(name, f"{prefix}{name.removeprefix(_PREFIX)}"): tensor[None] if name == _BIAS else tensor
        for name, tensor in state.items()
    }
