"""Convert a GGUF file (llama.cpp's format) into a folder in Hugging Face format, the only one that later stages read.

Reads Llama models with GPT-2's or SmolLM's byte-level tokenizer. Quantised weights are dequantised to float32.
llama.cpp permutes the rows of the query and key matrices so that the two halves of a rotary pair are adjacent; this is
undone. Cost: seconds and 4 bytes a weight; memory: the whole model in float32.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lexmill.base.cutting import beginning
from lexmill.base.errors import UserError
from lexmill.base.outside import finite_number, parsing, whole_number
from lexmill.base.shown import value_text
from lexmill.base.storage import canonical_json
from lexmill.corpora.fetching.gguf_header import check_header
from lexmill.corpora.fetching.source_folder import SourceFolder

Array = npt.NDArray[Any]

_GLOBAL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL, _USER_DEFINED = 3, 4  # token types


def convert(path: Path, target: SourceFolder) -> None:
    """Write config.json, model.safetensors, tokenizer.json and tokenizer_config.json of a GGUF file into a folder.

    Raises:
        UserError: the file is damaged, or its model or tokenizer is of another kind; names the key.
    """
    from gguf import GGUFReader
    from safetensors.numpy import save

    check_header(path)
    with parsing(f"{path.name} is not a readable GGUF file"):
        reader: Any = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    config = _config(fields, [tensor.name for tensor in reader.tensors])
    tokenizer, tokenizer_config = _tokenizer(fields)
    tensors = dict(_tensors(reader.tensors, config))
    for name, data in (
        ("config.json", canonical_json(config).encode()),
        ("tokenizer.json", tokenizer.encode()),
        ("tokenizer_config.json", canonical_json(tokenizer_config).encode()),
        ("model.safetensors", save(tensors, {"format": "pt"})),
    ):
        target.add(name, io.BytesIO(data))


def _config(fields: dict[str, Any], tensors: list[str]) -> dict[str, Any]:
    """The config.json of a LlamaForCausalLM."""
    if fields.get("general.architecture") != "llama":
        raise UserError(
            f"general.architecture is {value_text(fields.get('general.architecture'))}; only 'llama' is read"
        )
    scaling = fields.get("llama.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in tensors:
        raise UserError("its rotary positions are stretched (llama.rope.scaling); only plain ones are computed here")
    heads, width = _size(fields, "llama.attention.head_count"), _size(fields, "llama.embedding_length")
    theta = _number(fields, "llama.rope.freq_base", 10000.0)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "num_hidden_layers": _size(fields, "llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _size(fields, "llama.attention.head_count_kv", heads),
        "hidden_size": width,
        "head_dim": _size(fields, "llama.attention.key_length", max(1, width // heads)),
        "intermediate_size": _size(fields, "llama.feed_forward_length"),
        "max_position_embeddings": _size(fields, "llama.context_length"),
        "rope_theta": theta,
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "rms_norm_eps": _number(fields, "llama.attention.layer_norm_rms_epsilon", None),
        "tie_word_embeddings": "output.weight" not in tensors,
        "vocab_size": len(_list(fields, "tokenizer.ggml.tokens", str)),
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
        "dtype": "float32",
    }


def _size(fields: dict[str, Any], key: str, default: int | None = None) -> int:
    return whole_number(_value(fields, key, default), key)


def _number(fields: dict[str, Any], key: str, default: float | None) -> float:
    """A float32 as the shortest decimal number: 1e-05 for 9.999999747378752e-06."""
    return float(str(np.float32(finite_number(_value(fields, key, default), key))))


def _list(fields: dict[str, Any], key: str, kind: type) -> list[Any]:
    value = _value(fields, key, None)
    if not isinstance(value, list) or not all(isinstance(one, kind) for one in value):
        raise UserError(f"{key} is no list of {'texts' if kind is str else 'numbers'}")
    return value


def _value(fields: dict[str, Any], key: str, default: Any) -> Any:
    value = fields.get(key, default)
    if value is None:
        raise UserError(f"has no key '{key}'")
    return value


def _tensors(found: Any, config: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    from gguf import dequantize

    for tensor in found:
        name = _name(tensor.name)
        with parsing(f"tensor {beginning(tensor.name, 60)!r} cannot be read"):
            values: Array = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            if values.ndim != 2 or len(values) % (2 * heads):
                raise UserError(f"tensor {tensor.name!r} has shape {values.shape}, which {heads} heads do not share")
            values = _turned_back(values, heads)
        yield name, values


def _name(name: str) -> str:
    if name in _GLOBAL:
        return _GLOBAL[name]
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in _BLOCK or parts[3] != "weight":
        raise UserError(f"holds a tensor {beginning(name, 60)!r}, which no Llama has here")
    return f"model.layers.{parts[1]}.{_BLOCK[parts[2]]}.weight"


def _turned_back(weight: Array, heads: int) -> Array:
    """Rows of a head as (pair, half) -> as (half, pair): (H * K, D) -> (H * K, D)."""
    pairs = weight.reshape(heads, -1, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def _tokenizer(fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """tokenizer.json as text, and the contents of tokenizer_config.json."""
    import tokenizers
    from tokenizers import AddedToken, decoders, models, pre_tokenizers

    kind, pre = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or pre not in ("gpt-2", "smollm"):
        found = f"{repr(kind)[:40]}, {repr(pre)[:40]}"
        raise UserError(f"its tokenizer is of kind {found}; only 'gpt2' with 'gpt-2' or 'smollm' is read")
    tokens, types = _list(fields, "tokenizer.ggml.tokens", str), _list(fields, "tokenizer.ggml.token_type", int)
    merges = [tuple(merge.split(" ")) for merge in _list(fields, "tokenizer.ggml.merges", str)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens) or len(types) != len(tokens):
        raise UserError(f"its {len(tokens):,} tokens are not distinct, or have {len(types):,} types")
    with parsing("its tokenizer cannot be built"):
        backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    cutters: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if pre == "smollm" else []
    prefix = bool(fields.get("tokenizer.ggml.add_space_prefix", False))
    cutters.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix))
    backend.pre_tokenizer = pre_tokenizers.Sequence(cutters)
    backend.decoder = decoders.ByteLevel()
    for token, kind_of_token in zip(tokens, types, strict=True):
        if kind_of_token in (_CONTROL, _USER_DEFINED):
            special = kind_of_token == _CONTROL
            added = AddedToken(token, special=special, normalized=False)
            (backend.add_special_tokens if special else backend.add_tokens)([added])
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        i = fields.get(f"tokenizer.ggml.{key}_token_id")
        if i is not None:
            if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < len(tokens):
                raise UserError(f"tokenizer.ggml.{key}_token_id is {value_text(i)}, which is no token")
            config[f"{role}_token"] = tokens[i]
    if "tokenizer.chat_template" in fields:
        config["chat_template"] = fields["tokenizer.chat_template"]
    return json.dumps(json.loads(backend.to_str()), ensure_ascii=False, indent=2) + "\n", config
