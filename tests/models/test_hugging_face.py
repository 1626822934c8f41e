"""Folders in Hugging Face format: the same logits here as `transformers` gives, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lexmill.base.errors import UserError, UserErrors
from lexmill.models import build, pretrained
from lexmill.models.common.state import load_weights, weights
from lexmill.models.start import digest, start
from lexmill.tokenizers.imported import import_tokenizer
from tests.support.pretrained import save_gpt2, save_llama

TOKENS = torch.randint(0, 250, (3, 20), generator=torch.Generator().manual_seed(7))


def ours(folder: Path) -> torch.nn.Module:
    found = pretrained.read(folder)
    module = build({"family": found.family, "shape": found.shape, "vocab_size": found.vocab_size}).eval()
    load_weights(module, found.state)
    return module


@torch.no_grad()
def same_logits(module: torch.nn.Module, theirs: Any) -> None:
    torch.testing.assert_close(module(TOKENS), theirs(TOKENS).logits, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh", "gelu"])
def test_gpt2s_activation_is_read_from_its_config(tmp_path: Path, activation: str) -> None:
    theirs = save_gpt2(tmp_path, activation_function=activation)
    assert pretrained.read(tmp_path).shape["activation"] == ("gelu" if activation == "gelu" else "gelu_tanh")
    same_logits(ours(tmp_path), theirs)


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_gpt2_gives_the_same_logits(tmp_path: Path, prefix: str) -> None:
    theirs = save_gpt2(tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    named = {name.replace("transformer.", prefix): tensor for name, tensor in found.items()}
    named["h.0.attn.bias"] = torch.ones(1, 1, 32, 32).tril()  # the mask that older files hold
    if prefix:
        named[f"{prefix}h.1.attn.masked_bias"] = torch.tensor(-1e4)
        named["lm_head.weight"] = named[f"{prefix}wte.weight"].clone()
    save_file(named, tmp_path / "model.safetensors")
    same_logits(ours(tmp_path), theirs)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "rms_norm_eps": 1e-3},
        {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}},
        {"head_dim": 6},
    ],
)
def test_llama_gives_the_same_logits(tmp_path: Path, changes: dict[str, Any]) -> None:
    theirs = save_llama(tmp_path, **changes)
    same_logits(ours(tmp_path), theirs)


def test_old_keys_of_the_rotary_base_are_read(tmp_path: Path) -> None:
    theirs = save_llama(tmp_path, rope_parameters={"rope_theta": 321.0, "rope_type": "default"})
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_parameters"]
    config |= {"rope_theta": 321.0, "rope_scaling": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    same_logits(ours(tmp_path), theirs)


def test_weights_in_several_files(tmp_path: Path) -> None:
    theirs = save_llama(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    same_logits(ours(tmp_path), theirs)
    next(tmp_path.glob("model-*.safetensors")).unlink()
    with pytest.raises(UserError, match="which the index of the weights names, is missing"):
        pretrained.read(tmp_path)


@pytest.mark.parametrize(
    ("save", "change", "message"),
    [
        (save_gpt2, {"activation_function": "relu"}, "activation_function is 'relu'"),
        (save_gpt2, {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06"),
        (save_gpt2, {"n_inner": 40}, "n_inner is 40"),
        (save_gpt2, {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        (save_gpt2, {"n_layer": None}, r"config\.json"),
        (
            save_gpt2,
            {"model_type": "gpt_neox"},
            "model_type 'gpt_neox' cannot be read; one of: bert, gpt2, roberta",
        ),
        (save_gpt2, {"n_layer": 3}, "'h.2.ln_1.weight' is missing"),
        (save_gpt2, {"n_layer": 1}, "'h.1.* is unknown"),
        (save_llama, {"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling is of type 'llama3'"),
        (save_llama, {"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters is of type 'yarn'"),
        (save_llama, {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (save_llama, {"attention_bias": True}, "attention_bias is True"),
        (save_llama, {"sliding_window": 128}, "sliding_window is 128"),
        (save_llama, {"tie_word_embeddings": True}, "'lm_head.weight' is not the embedding"),
    ],
)
def test_what_is_not_computed_here_is_refused_by_its_key(
    tmp_path: Path, save: Any, change: dict[str, Any], message: str
) -> None:
    save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | change
    config = {key: value for key, value in config.items() if key not in change or change[key] is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=message) as caught:
        pretrained.read(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    save_gpt2(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin is a pickle"):
        pretrained.read(tmp_path)


def test_an_untied_output_matrix_is_refused_for_gpt2(tmp_path: Path) -> None:
    save_gpt2(tmp_path)
    named = load_file(tmp_path / "model.safetensors")
    save_file(named | {"lm_head.weight": named["transformer.wte.weight"] + 1}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"'lm_head\.weight' is not the embedding"):
        pretrained.read(tmp_path)


def begun(checkpoint: Path, tmp_path: Path, **changes: Any) -> torch.nn.Module:
    """A module that started from the checkpoint, with the shape of params.yaml changed."""
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    size = import_tokenizer(checkpoint, tokenizer).vocab_size
    found = pretrained.read(checkpoint)
    config = {"family": found.family, "shape": found.shape | {"dropout": 0.1} | changes, "vocab_size": size}
    module = build(config).eval()
    start(module, config, checkpoint, tokenizer)
    return module


def test_a_training_starts_from_its_logits(tmp_path: Path) -> None:
    theirs = save_gpt2(tmp_path / "gpt2")
    same_logits(begun(tmp_path / "gpt2", tmp_path), theirs)


def test_weights_in_half_precision_become_float32(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    save_llama(tmp_path / "llama").to(torch.bfloat16).save_pretrained(tmp_path / "llama")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "llama", dtype=torch.float32)
    module = begun(tmp_path / "llama", tmp_path)
    assert {tensor.dtype for tensor in weights(module).values()} == {torch.float32}
    same_logits(module, theirs)


def test_a_padded_vocabulary_loses_its_padding(tmp_path: Path) -> None:
    theirs = save_gpt2(tmp_path / "gpt2", pad=7)
    module = begun(tmp_path / "gpt2", tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(module(TOKENS), theirs(TOKENS).logits[..., :-7], atol=2e-5, rtol=1e-4)


def test_a_shorter_context_takes_the_first_positions(tmp_path: Path) -> None:
    theirs = save_gpt2(tmp_path / "gpt2")
    module = begun(tmp_path / "gpt2", tmp_path, context=20)
    assert len(weights(module)["positions.weight"]) == 20
    same_logits(module, theirs)


def test_every_field_that_differs_is_reported_with_both_values(tmp_path: Path) -> None:
    save_gpt2(tmp_path / "gpt2")
    with pytest.raises(UserErrors) as caught:
        begun(tmp_path / "gpt2", tmp_path, n_layer=3, d_model=32, context=64, norm="post")
    said = str(caught.value)
    assert "shape.n_layer is 2 there, 3 in params.yaml" in said
    assert "shape.d_model is 16 there, 32 in params.yaml" in said
    assert "shape.context is 32 there, 64 in params.yaml; it may not be longer" in said
    assert "shape.norm is pre there, post in params.yaml" in said
    assert "shape.n_head" not in said


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    save_gpt2(tmp_path / "gpt2")
    save_llama(tmp_path / "llama")
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    size = import_tokenizer(tmp_path / "llama", tokenizer).vocab_size
    found = pretrained.read(tmp_path / "gpt2")
    config = {"family": "gpt", "shape": found.shape, "vocab_size": size}
    with pytest.raises(UserError, match=r"another tokenizer than .*tokenizer, which made its data"):
        start(build(config), config, tmp_path / "gpt2", tokenizer)


def test_a_tokenizer_with_more_entries_than_the_embedding_is_refused(tmp_path: Path) -> None:
    save_gpt2(tmp_path / "gpt2", pad=-1)
    with pytest.raises(UserError, match=r"its embedding has 319 rows, but .* 320 entries"):
        begun(tmp_path / "gpt2", tmp_path)


def test_a_start_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="start: this does not exist"):
        digest(tmp_path / "nothing")
