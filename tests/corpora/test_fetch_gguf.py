"""A GGUF file becomes a folder in Hugging Face format: the same logits and ids as the model it was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from lexmill.base.errors import UserError
from lexmill.base.storage import read_json, sha256_file
from lexmill.corpora.fetching.checkpoint_folder import fetch_checkpoint
from lexmill.params.corpora import FileSource
from tests.support.pretrained import END, TEXTS, gpt2_tokenizer

WIDTH, HEADS, GROUPS, LAYERS = 64, 4, 2, 2
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def turned(weight: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter turns the rows of queries and keys."""
    parts = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return parts.swapaxes(1, 2).reshape(weight.shape)


def llama(backend: Any, tied: bool) -> Any:
    config = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        max_position_embeddings=32,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_theta": 5000.0, "rope_type": "default"},
        tie_word_embeddings=tied,
        vocab_size=backend.get_vocab_size(),
    )
    torch.manual_seed(3)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def write(path: Path, model: Any, backend: Any, pre: str, **changes: Any) -> None:
    """The model as a GGUF file, its feed-forward matrices rounded to 8 bits; the model takes the rounded numbers."""
    writer = gguf.GGUFWriter(path, changes.get("architecture", "llama"))
    writer.add_block_count(LAYERS)
    writer.add_context_length(32)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(96)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if "scaling" in changes:
        writer.add_rope_scaling_type(changes["scaling"])
    state = json.loads(backend.to_str())
    vocabulary = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    writer.add_tokenizer_model(changes.get("tokenizer", "gpt2"))
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token == END else 1 for token, _ in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in state["model"]["merges"]])
    writer.add_eos_token_id(backend.token_to_id(END))
    writer.add_bos_token_id(backend.token_to_id(END))
    tensors = {
        "token_embd.weight": model.model.embed_tokens.weight,
        "output_norm.weight": model.model.norm.weight,
    }
    if not model.config.tie_word_embeddings:
        tensors["output.weight"] = model.lm_head.weight
    for layer, block in enumerate(model.model.layers):
        for theirs, ours in NAMES.items():
            tensors[f"blk.{layer}.{ours}.weight"] = block.get_parameter(f"{theirs}.weight")
    for name, parameter in tensors.items():
        values = parameter.detach().numpy()
        if ".ffn_up" in name or ".ffn_gate" in name:
            packed = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            rounded = gguf.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
            parameter.data.copy_(torch.from_numpy(rounded))
            continue
        if ".attn_q." in name or ".attn_k." in name:
            values = turned(values, HEADS if "_q" in name else GROUPS)
        writer.add_tensor(name, np.ascontiguousarray(values))
    for name in changes.get("extra", ()):
        writer.add_tensor(name, np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(("tied", "pre"), [(True, "smollm"), (False, "gpt-2")])
def test_logits_and_ids_are_those_of_the_model(tmp_path: Path, tied: bool, pre: str) -> None:
    backend = gpt2_tokenizer()
    if pre == "smollm":
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    model = llama(backend, tied)
    write(tmp_path / "tiny.gguf", model, backend, pre)
    target = tmp_path / "target"
    manifest = fetch_checkpoint(FileSource("file", ("tiny.gguf",)), tmp_path, target)
    assert read_json(target / "manifest.json") == manifest
    names = sorted(path.name for path in target.iterdir())
    assert names == sorted([entry["path"] for entry in manifest["files"]] + ["manifest.json"])
    assert all(sha256_file(target / entry["path"]) == entry["sha256"] for entry in manifest["files"])
    theirs = AutoModelForCausalLM.from_pretrained(target)
    tokens = torch.randint(0, 300, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, model(tokens).logits, atol=1e-5, rtol=1e-5)
    assert theirs.config.rms_norm_eps == 1e-5
    tokenizer = AutoTokenizer.from_pretrained(target)
    for text in TEXTS:
        assert tokenizer(text)["input_ids"] == backend.encode(text).ids
    assert tokenizer.eos_token == END


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "bert"}, "general.architecture is 'bert'"),
        ({"tokenizer": "llama"}, "its tokenizer is of kind 'llama'"),
        ({"scaling": gguf.RopeScalingType.YARN}, "its rotary positions are stretched"),
        ({"extra": ["blk.0.attn_q.bias"]}, r"a tensor 'blk\.0\.attn_q\.bias'"),
    ],
)
def test_what_is_not_computed_here_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    backend = gpt2_tokenizer()
    write(tmp_path / "tiny.gguf", llama(backend, True), backend, "smollm", **changes)
    with pytest.raises(UserError, match=message):
        fetch_checkpoint(FileSource("file", ("tiny.gguf",)), tmp_path, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF" + b"\0" * 40)
    with pytest.raises(UserError, match=r"tiny\.gguf"):
        fetch_checkpoint(FileSource("file", ("tiny.gguf",)), tmp_path, tmp_path / "target")
