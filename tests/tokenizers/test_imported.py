"""Tokenizers that came with a pretrained model: the same ids as `transformers`, texts back whole, right byte counts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.tokenizers import Tokenizer, kinds, load, saving
from lexmill.tokenizers.bulk import BulkEncoder
from lexmill.tokenizers.imported import import_tokenizer, origin, origin_of
from tests.support.pretrained import END, TEXTS, gpt2_tokenizer, llama_tokenizer, save_tokenizer
from tests.support.tiny_bert import make_tiny_bert

PROBES = [*TEXTS, "", " ", "a", f"typed {END} </s> <s>", "tabs\tand\r\nlines\n\n", "  x", "東京 \u2028 🙂"]
PROBES.append("5 12  3.\n\nNo")


def made(folder: Path, kind: str = "gpt2") -> Tokenizer:
    checkpoint, target = folder / "checkpoint", folder / "tokenizer"
    target.mkdir(parents=True)
    if kind == "gpt2":
        save_tokenizer(gpt2_tokenizer(), checkpoint, eos_token=END, bos_token=END, unk_token=END)
    else:
        save_tokenizer(llama_tokenizer(), checkpoint, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    return import_tokenizer(checkpoint, target)


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return made(tmp_path_factory.mktemp(request.param), request.param)


def test_special_tokens_are_those_of_the_model(tmp_path: Path) -> None:
    gpt2, llama = made(tmp_path / "a"), made(tmp_path / "b", "llama")
    end = gpt2.vocab_size - 1
    assert (gpt2.eos_id, gpt2.bos_id, gpt2.pad_id, gpt2.unk_id, gpt2.mask_id) == (end, end, end, None, None)
    assert gpt2.never_written == ()
    assert (llama.bos_id, llama.eos_id, llama.pad_id, llama.unk_id) == (1, 2, 2, None)
    assert llama.never_written == (1,)


def test_texts_come_back_and_nothing_is_added(imported: Tokenizer) -> None:
    for text in PROBES:
        ids = imported.encode(text)
        assert imported.decode(ids) == imported.normalize(text) == text
        assert imported.decode([imported.bos_id, *ids, imported.eos_id, imported.pad_id]) == text
        assert imported.eos_id not in ids


@settings(max_examples=60, deadline=None)
@given(text=st.text().filter(lambda text: "▁" not in text))
def test_any_text_comes_back(imported: Tokenizer, text: str) -> None:
    assert imported.decode(imported.encode(text)) == text


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.one_of(st.sampled_from(PROBES), st.text(alphabet=" \n\tab.,;'1é▁")), max_size=4))
def test_bulk_encoding_gives_the_same_ids(imported: Tokenizer, texts: list[str]) -> None:
    ids, lengths = BulkEncoder(imported).encode(texts)
    rows = [imported.encode(text) for text in texts]
    assert ids.tolist() == [token for row in rows for token in row]
    assert lengths.tolist() == [len(row) for row in rows]


def test_digits_set_apart_are_cut_in_bulk_as_well(tmp_path: Path) -> None:
    """SmolLM2's pattern."""
    backend = gpt2_tokenizer()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    save_tokenizer(backend, tmp_path / "c", eos_token=END)
    (tmp_path / "t").mkdir()
    tokenizer = import_tokenizer(tmp_path / "c", tmp_path / "t")
    assert tokenizer.cuts_at_space
    for text in PROBES:
        assert BulkEncoder(tokenizer).encode([text])[0].tolist() == tokenizer.encode(text)


def test_a_pattern_that_crosses_spaces_is_encoded_whole(tmp_path: Path) -> None:
    """Llama 3's pattern has line breaks in the token of the mark before them."""
    backend = gpt2_tokenizer()
    pattern = tokenizers.Regex(r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)| ?\p{L}+|\p{N}|\s+")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    model = json.loads(backend.to_str())["model"]
    model["vocab"][".Ċ"] = len(model["vocab"]) + 1  # the end token stands between
    backend.model = models.BPE(model["vocab"], [*map(tuple, model["merges"]), (".", "Ċ")])
    save_tokenizer(backend, tmp_path / "c", eos_token=END)
    (tmp_path / "t").mkdir()
    tokenizer = import_tokenizer(tmp_path / "c", tmp_path / "t")
    assert not tokenizer.cuts_at_space
    ids = tokenizer.encode("a.\nb")
    assert tokenizer.backend.token_to_id(".Ċ") in ids
    assert BulkEncoder(tokenizer).encode(["a.\nb"])[0].tolist() == ids


def test_bytes_of_a_text_are_its_own_not_those_of_the_space_marks(tmp_path: Path) -> None:
    tokenizer = made(tmp_path, "llama")
    assert tokenizer.normalize(" a b") == " a b"
    assert str(tokenizer.backend.normalizer.normalize_str("a b")) == "▁a▁b"


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_auto_tokenizer_gives_the_same_ids(kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    ours = made(tmp_path, kind)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    for text in PROBES:
        assert theirs(text)["input_ids"] == ours.encode(text)
        assert theirs.decode(ours.encode(text)) == text
    assert (theirs.eos_token_id, theirs.bos_token_id, theirs.pad_token_id) == (ours.eos_id, ours.bos_id, ours.pad_id)


def test_the_ids_are_those_of_the_model_without_its_template(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    ours = made(tmp_path, "llama")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    for text in TEXTS:
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text)


def test_an_old_folder_without_tokenizer_json(tmp_path: Path) -> None:
    backend = gpt2_tokenizer()
    checkpoint, target = tmp_path / "c", tmp_path / "t"
    checkpoint.mkdir()
    target.mkdir()
    backend.model.save(str(checkpoint))
    vocabulary = json.loads((checkpoint / "vocab.json").read_text())
    (checkpoint / "vocab.json").write_text(json.dumps(vocabulary | {END: backend.token_to_id(END)}))
    (checkpoint / "config.json").write_text('{"model_type": "gpt2"}')
    config = {"tokenizer_class": "GPT2Tokenizer", "eos_token": END}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = import_tokenizer(checkpoint, target)
    backend.encode_special_tokens = True
    for text in PROBES:
        assert tokenizer.encode(text) == backend.encode(text, add_special_tokens=False).ids
    assert tokenizer.eos_id == backend.token_to_id(END)
    assert origin(checkpoint) == origin_of(target)


def test_the_origin_tells_tokenizers_apart_and_survives_copies(tmp_path: Path) -> None:
    made(tmp_path / "a")
    made(tmp_path / "b", "llama")
    first = origin(tmp_path / "a" / "checkpoint")
    assert first == origin_of(tmp_path / "a" / "tokenizer") != origin_of(tmp_path / "b" / "tokenizer")
    model = tmp_path / "model"
    model.mkdir()
    shutil.copytree(tmp_path / "a" / "tokenizer", model / "tokenizer")
    assert origin(model) == first
    (tmp_path / "again").mkdir()
    again = import_tokenizer(model, tmp_path / "again")
    assert again.fingerprint == load(tmp_path / "a" / "tokenizer").fingerprint
    assert origin_of(tmp_path / "again") == first


def test_a_tokenizer_of_lexmill_comes_in_again_as_it_was(tmp_path: Path) -> None:
    export, target = tmp_path / "export", tmp_path / "t"
    export.mkdir()
    target.mkdir()
    saving.save(kinds.assemble("byte", kinds.byte_model(), lowercase=False), export)
    again = import_tokenizer(export, target)
    assert not again.imported
    assert again.fingerprint == load(export).fingerprint
    assert origin(export) == origin_of(target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("none", "there is no tokenizer|transformers cannot make one"),
        ("no end", "names no end token"),
        ("lowercase", "does not give a text back"),
        ("broken", "not a tokenizer file"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, change: str, message: str) -> None:
    checkpoint, target = tmp_path / "c", tmp_path / "t"
    checkpoint.mkdir()
    target.mkdir()
    backend: Any = gpt2_tokenizer()
    special = {} if change == "no end" else {"eos_token": END}
    if change == "lowercase":
        backend.pre_tokenizer = pre_tokenizers.Whitespace()
        backend.decoder = tokenizers.decoders.WordPiece()
    save_tokenizer(backend, checkpoint, **special)
    if change == "none":
        (checkpoint / "tokenizer.json").unlink()
    if change == "broken":
        storage.write_text(checkpoint / "tokenizer.json", "{}")
    with pytest.raises(UserError, match=message):
        import_tokenizer(checkpoint, target)


def test_an_encoders_tokenizer_is_taken_and_says_that_it_loses_text(tmp_path: Path) -> None:
    """A WordPiece tokenizer keeps no white space, which a classifier does not miss; its tokens are BERT's by name."""
    make_tiny_bert(tmp_path / "c", ["a", "mill"])
    (tmp_path / "t").mkdir()
    found = import_tokenizer(tmp_path / "c", tmp_path / "t")
    assert not found.keeps_text
    assert (found.pad_id, found.unk_id, found.bos_id, found.eos_id, found.mask_id) == (0, 1, 2, 3, 4)
    assert found.encode_batch(["A  mill", "[SEP] mill"]) == [[5, 6], [1, 1, 1, 6]], "nothing is added, padded or cut"
    assert load(tmp_path / "t").fingerprint == found.fingerprint
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / "c" / name).unlink(missing_ok=True)
    with pytest.raises(UserError, match=r"there is no tokenizer here|transformers cannot make one"):
        import_tokenizer(tmp_path / "c", tmp_path / "t")
