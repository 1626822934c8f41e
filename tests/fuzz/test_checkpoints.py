"""Pretrained models from outside: hostile config, index, weights, tokenizer and GGUF files end in a message."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from lexmill.base.errors import UserError, UserErrors
from lexmill.corpora.fetching.checkpoint_folder import check_checkpoint
from lexmill.corpora.fetching.gguf_file import convert
from lexmill.corpora.fetching.source_folder import SourceFolder
from lexmill.models import folder as model_folder
from lexmill.models import pretrained
from lexmill.tokenizers.imported import import_tokenizer
from lexmill.tokenizers.tokenizer import load as load_tokenizer
from tests.fuzz.budget import empty_folder, fuzzed, hostile_json, limited, mutated, outcome
from tests.support.pretrained import gpt2_tokenizer

GPT2 = {"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 11}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "hidden_size": 8,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "vocab_size": 11,
    "eos_token_id": [1],
}
BERT = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}
OURS = {
    "kind": "language_model",
    "family": "gpt",
    "shape": {"n_layer": 1, "n_head": 2, "d_model": 8, "context": 16},
    "vocab_size": 11,
    "format": model_folder.FORMAT,
}
GPT2_WEIGHTS = {
    "wte.weight": (11, 8),
    "wpe.weight": (16, 8),
    "ln_f.weight": (8,),
    "ln_f.bias": (8,),
    **{
        f"h.0.{name}.{part}": shape
        for name, (weight, bias) in {
            "ln_1": ((8,), (8,)),
            "ln_2": ((8,), (8,)),
            "attn.c_attn": ((8, 24), (24,)),
            "attn.c_proj": ((8, 8), (8,)),
            "mlp.c_fc": ((8, 32), (32,)),
            "mlp.c_proj": ((32, 8), (8,)),
        }.items()
        for part, shape in (("weight", weight), ("bias", bias))
    },
}
WEIGHTS = save({name: torch.ones(shape) for name, shape in GPT2_WEIGHTS.items()})


def write(folder: Path, config: Any, weights: bytes = WEIGHTS) -> Path:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def read(folder: Path) -> None:
    """As fetch, start and planning read a model from outside."""
    check_checkpoint(folder)
    pretrained.read_shape(folder)
    pretrained.read(folder)


def test_the_small_models_are_read(tmp_path: Path) -> None:
    found = pretrained.read(write(tmp_path, GPT2))
    assert (found.family, found.vocab_size, len(found.state)) == ("gpt", 11, len(GPT2_WEIGHTS))
    model_folder.build(OURS)


@pytest.mark.parametrize("config", [GPT2, LLAMA, BERT, OURS], ids=["gpt2", "llama", "bert", "ours"])
def test_a_hostile_config_ends_in_a_message(config: dict[str, Any]) -> None:
    @fuzzed(120)
    @given(hostile_json(config))
    def check(value: Any) -> None:
        with empty_folder() as folder:
            write(folder, value)
            outcome(lambda: pretrained.read(folder))
            outcome(lambda: model_folder.load(folder))
            outcome(lambda: check_checkpoint(folder))

    check()


def read_models(*folders: str) -> None:
    """Read models that are all refused; raise their errors."""
    errors: list[str | UserError] = []
    for folder in map(Path, folders):
        try:
            if "kind" in json.loads((folder / "config.json").read_text(encoding="utf-8")):
                model_folder.load(folder)
            else:
                pretrained.read(folder)
        except UserError as error:
            errors.append(error)
    raise UserErrors(errors)


def test_absurd_sizes_are_refused_before_they_are_allocated(tmp_path: Path) -> None:
    shape: dict[str, Any] = OURS["shape"]  # type: ignore[assignment]
    absurd: list[tuple[dict[str, Any], str]] = [
        ({**GPT2, "n_layer": 10**9}, "n_layer is 1000000000; a whole number from 1 to"),
        ({**GPT2, "n_layer": 10_001}, "n_layer: 10001 is too large; at most 1000"),
        ({**GPT2, "n_embd": 2**40, "n_head": 1}, "n_embd is 1099511627776; a whole number from 1 to"),
        ({**LLAMA, "num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({**BERT, "num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000 is too large; at most 1000"),
        ({**OURS, "vocab_size": 2**23, "shape": {**shape, "d_model": 2**19}}, "do not fit the model"),
        ({**OURS, "shape": {**shape, "n_layer": 10**9}}, "shape.n_layer: 1000000000 is too large"),
    ]
    folders = []
    for i, (config, _) in enumerate(absurd):
        (tmp_path / str(i)).mkdir()
        folders.append(str(write(tmp_path / str(i), config)))
    said = limited("tests.fuzz.test_checkpoints:read_models", *folders, megabytes=150).split("\n")
    assert [message in line for line, (_, message) in zip(said, absurd, strict=True)] == [True] * len(absurd), said


def test_json_nested_without_end_is_refused(tmp_path: Path) -> None:
    write(tmp_path, GPT2)
    for depth in (200, 100_000):
        (tmp_path / "config.json").write_text('{"model_type": ' + "[" * depth + "]" * depth + "}", encoding="utf-8")
        with pytest.raises(UserError, match="nested deeper than 100 levels"):
            pretrained.read(tmp_path)


# ---------------------------------------------------------------- weights and their index


def test_any_bytes_as_weights_end_in_a_message() -> None:
    @fuzzed(100)
    @given(mutated([WEIGHTS, save({"a": torch.ones(2)})]))
    def check(data: bytes) -> None:
        with empty_folder() as folder:
            outcome(lambda: read(write(folder, GPT2, data)))

    check()


@st.composite
def hostile_header(draw: st.DrawFn) -> bytes:
    size = int.from_bytes(WEIGHTS[:8], "little")
    header = json.dumps(draw(hostile_json(json.loads(WEIGHTS[8 : 8 + size])))).encode()
    claimed = draw(st.sampled_from([len(header), len(header), len(header), 0, 100 << 20, 2**40, 2**63]))
    return claimed.to_bytes(8, "little") + header + WEIGHTS[8 + size :]


def test_a_hostile_safetensors_header_ends_in_a_message() -> None:
    @fuzzed(100)
    @given(hostile_header())
    def check(data: bytes) -> None:
        with empty_folder() as folder:
            outcome(lambda: read(write(folder, GPT2, data)))

    check()


@pytest.mark.parametrize("offsets", [[0, 2**40], [4, 8], [-8, 0], [8, 0], [2**63, 2**64]])
def test_offsets_out_of_the_file_or_that_overlap_are_refused(tmp_path: Path, offsets: list[int]) -> None:
    header = json.dumps(
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [1], "data_offsets": offsets},
        }
    ).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(12)
    with pytest.raises(UserError, match="cannot be read"):
        model_folder.read_tensors(write(tmp_path, GPT2, data) / "model.safetensors")


INDEX = {"metadata": {"total_size": 8}, "weight_map": dict.fromkeys(GPT2_WEIGHTS, "part-1.safetensors")}


def test_a_hostile_index_ends_in_a_message() -> None:
    @fuzzed(100)
    @given(hostile_json(INDEX) | mutated([json.dumps(INDEX).encode()]))
    def check(value: Any) -> None:
        with empty_folder() as folder:
            write(folder, GPT2)
            (folder / "model.safetensors").rename(folder / "part-1.safetensors")
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            (folder / "model.safetensors.index.json").write_bytes(data)
            outcome(lambda: read(folder))

    check()


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "..", "a\\..\\b", "", "gone.safetensors", 3, None]
)
def test_an_index_names_files_of_its_own_folder_only(tmp_path: Path, name: Any) -> None:
    (tmp_path / "secret.safetensors").write_bytes(WEIGHTS)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(GPT2), encoding="utf-8")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}), encoding="utf-8")
    with pytest.raises(UserError, match=r"not an index of weights|gone\.safetensors, which the index"):
        pretrained.tensors(folder)


# ---------------------------------------------------------------- tokenizers

BACKEND = gpt2_tokenizer()
TOKENIZER = json.loads(BACKEND.to_str())
UNIGRAM = {
    **{key: None for key in ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")},
    "version": "1.0",
    "added_tokens": [
        {
            "id": 0,
            "content": "</s>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "model": {
        "type": "Unigram",
        "unk_id": 1,
        "vocab": [["</s>", 0.0], ["<unk>", 0.0], ["a", -1.0], ["b", -1.5]],
        "byte_fallback": False,
    },
}
NAMED = {"eos_token": TOKENIZER["added_tokens"][0]["content"], "tokenizer_class": "PreTrainedTokenizerFast"}


def import_into(folder: Path) -> None:
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / "out").mkdir()
    import_tokenizer(folder, folder / "out")
    load_tokenizer(folder / "out").encode("some text")


@pytest.mark.parametrize("state", [TOKENIZER, UNIGRAM], ids=["bpe", "unigram"])
def test_a_hostile_tokenizer_ends_in_a_message(state: dict[str, Any]) -> None:
    shown = {**state, "model": dict(state["model"])}
    if isinstance(shown["model"]["vocab"], dict):  # small, so that the mutations meet all of it
        shown["model"] |= {
            "vocab": dict(list(shown["model"]["vocab"].items())[:300]),
            "merges": shown["model"]["merges"][:3],
        }

    @fuzzed(100)
    @given(hostile_json(shown) | mutated([json.dumps(shown).encode()]), hostile_json(NAMED) | st.just(NAMED))
    def check(value: Any, named: Any) -> None:
        with empty_folder() as folder:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            (folder / "tokenizer.json").write_bytes(data)
            (folder / "tokenizer_config.json").write_text(json.dumps(named), encoding="utf-8")
            outcome(lambda: import_into(folder))

    check()


def test_hostile_special_tokens_end_in_a_message() -> None:
    with empty_folder() as made:
        (made / "tokenizer.json").write_text(BACKEND.to_str(), encoding="utf-8")
        (made / "tokenizer_config.json").write_text(json.dumps(NAMED), encoding="utf-8")
        import_into(made)
        special = json.loads((made / "out" / "special_tokens.json").read_text(encoding="utf-8"))

        @fuzzed(60)
        @given(hostile_json(special) | mutated([json.dumps(special).encode()]))
        def check(value: Any) -> None:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            (made / "out" / "special_tokens.json").write_bytes(data)
            outcome(lambda: load_tokenizer(made / "out").decode([0, 1]))

        check()


VOCABULARIES = {
    "vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n",
    "tokenizer.model": b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02",
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_old_vocabulary_files_end_in_a_message(name: str) -> None:
    @fuzzed(15)
    @given(mutated([VOCABULARIES[name]]))
    def check(data: bytes) -> None:
        with empty_folder() as folder:
            kind = "bert" if name == "vocab.txt" else "llama"
            (folder / "config.json").write_text(json.dumps({"model_type": kind}), encoding="utf-8")
            (folder / name).write_bytes(data)
            outcome(lambda: import_into(folder))

    check()


# ---------------------------------------------------------------- GGUF


def gguf_bytes(folder: Path) -> bytes:
    path = folder / "made.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (
        ("context_length", 16),
        ("embedding_length", 8),
        ("block_count", 1),
        ("feed_forward_length", 8),
        ("attention.head_count", 2),
    ):
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["a", "b", "ab", "<end>"])
    writer.add_token_types([1, 1, 1, 3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(3)
    for name, shape in (("token_embd", (4, 8)), ("output_norm", (8,)), ("blk.0.attn_q", (8, 8))):
        writer.add_tensor(f"{name}.weight", torch.ones(shape).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def convert_into(path: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    convert(path, SourceFolder(folder))


def test_any_gguf_file_ends_in_a_message() -> None:
    with empty_folder() as made:
        seed = gguf_bytes(made)
        convert_into(made / "made.gguf", made / "out")

        @fuzzed(150)
        @given(mutated([seed]))
        def check(data: bytes) -> None:
            (made / "x.gguf").write_bytes(data)
            outcome(lambda: convert_into(made / "x.gguf", made / "out"))

        check()


HEAD = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"


CLAIMS = [
    (HEAD + struct.pack("<IIQ", 9, 4, 2**40), "claims 1,099,511,627,776 items of an array, more than"),
    (HEAD + struct.pack("<IIQ", 9, 8, 2**40), "claims 1,099,511,627,776 items of an array, more than"),
    (HEAD + struct.pack("<IIQ", 9, 4, 10**7), "its header claims 40,000,000 bytes where 0 are left"),
    (HEAD + struct.pack("<IQ", 8, 2**50), "its header claims 1,125,899,906,842,624 bytes"),
    (HEAD + struct.pack("<IIQ", 9, 9, 1) * 2000, "a value of type 9"),
    (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0), "claims 1,099,511,627,776 tensors"),
]


def convert_all(*paths: str) -> None:
    """Convert files that are all refused; raise their errors."""
    errors: list[str | UserError] = []
    for path in map(Path, paths):
        try:
            convert_into(path, path.with_suffix(".out"))
        except UserError as error:
            errors.append(error)
    raise UserErrors(errors)


def test_a_gguf_header_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.gguf" for i in range(len(CLAIMS))]
    for path, (data, _) in zip(paths, CLAIMS, strict=True):
        path.write_bytes(data)
    said = limited("tests.fuzz.test_checkpoints:convert_all", *map(str, paths), megabytes=150).split("\n")
    assert [message in line for line, (_, message) in zip(said, CLAIMS, strict=True)] == [True] * len(CLAIMS), said
