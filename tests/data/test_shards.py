"""Token shards: what is written is read, and what is damaged is refused by name."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.data.shards import HEADER, TokenArray, TokenShards, token_dtype
from tests.data.made_shards import CORPUS, EOS, TOKENIZER, random_documents, text_shards, write_shards


def test_documents_come_back_across_shards(tmp_path):
    documents = random_documents(40, seed=0)
    shards = text_shards(tmp_path / "t", documents)
    assert len(list((tmp_path / "t").glob("train-text-*.bin"))) > 5
    assert len(shards) == 40
    assert [shards.document(i).tolist() for i in range(40)] == [[*d, EOS] for d in documents]
    flat = [token for d in documents for token in [*d, EOS]]
    assert shards.tokens[:].tolist() == flat
    assert [shards.tokens[i] for i in range(len(flat))] == flat
    assert shards.tokens[-1] == flat[-1]
    assert shards.offsets.tolist() == np.cumsum([0, *(len(d) + 1 for d in documents)]).tolist()
    assert (shards.vocab_size, shards.tokenizer_fingerprint, shards.corpus_fingerprint) == (300, TOKENIZER, CORPUS)
    assert (shards.pad_id, shards.unk_id, shards.bos_id, shards.eos_id) == (0, 1, 2, 3)
    shards.verify()


@given(cuts=st.lists(st.integers(0, 12), max_size=5), data=st.data())
def test_several_arrays_read_as_one(cuts, data):
    parts = [np.arange(size, dtype=np.uint16) + 100 * i for i, size in enumerate(cuts)]
    whole = np.concatenate([*parts, np.empty(0, np.uint16)])
    array = TokenArray(parts, np.dtype(np.uint16))
    start = data.draw(st.integers(-70, 70))
    stop = data.draw(st.integers(-70, 70))
    assert array[start:stop].tolist() == whole[start:stop].tolist()
    if 0 <= start < len(whole):
        assert array[start] == whole[start]


def test_reading_outside_is_an_index_error(tmp_path):
    shards = text_shards(tmp_path / "t", [[5, 6]])
    for position in (3, -4):
        with pytest.raises(IndexError):
            shards.tokens[position]
    for document in (1, -1):
        with pytest.raises(IndexError):
            shards.document(document)
    with pytest.raises(ValueError, match="step 1"):
        shards.tokens[::2]


def test_small_vocabularies_take_two_bytes_a_token_and_large_ones_four(tmp_path):
    assert token_dtype(1 << 16).itemsize == 2
    assert token_dtype((1 << 16) + 1).itemsize == 4
    shards = text_shards(tmp_path / "t", [[70_000, 5]], vocab_size=100_000)
    assert shards.document(0).tolist() == [70_000, 5, EOS]


def test_a_split_without_documents_has_length_zero(tmp_path):
    shards = text_shards(tmp_path / "t", [])
    assert len(shards) == 0
    assert len(shards.tokens) == 0


def test_equal_input_gives_equal_bytes(tmp_path):
    documents = random_documents(20, seed=1)
    for name in ("a", "b"):
        write_shards(tmp_path / name, {"train": {"text": documents}})
    assert storage.sha256_folder(tmp_path / "a") == storage.sha256_folder(tmp_path / "b")


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="run the encode stage first"):
        TokenShards(tmp_path, "train")
    folder = write_shards(tmp_path / "t", {"train": {"text": [[5]]}})
    with pytest.raises(UserError, match="no split 'test'; there are: train"):
        TokenShards(folder, "test")
    with pytest.raises(UserError, match="no side 'source', but: text"):
        TokenShards(folder, "train", "source")
    (folder / "train-text-00000.bin").unlink()
    with pytest.raises(UserError, match=r"train-text-00000\.bin: the file is missing"):
        TokenShards(folder, "train")


def overwrite(path, offset, data):
    with open(path, "r+b") as stream:
        stream.seek(offset)
        stream.write(data)


@pytest.mark.parametrize(
    ("offset", "data", "message"),
    [
        (0, b"NOTMINE!", "not a token shard"),
        (8, struct.pack("<I", 99), "version 99 of the token format, this lexmill reads 1"),
        (12, struct.pack("<I", 4), "4 bytes an item, the manifest says 2"),
        (16, struct.pack("<Q", 5), "cut off or altered"),
        (24, bytes(32), "made with another tokenizer"),
        (56, bytes(32), "made with another corpus"),
        (88, bytes(32), "count or hash differ"),
    ],
)
def test_a_damaged_header_is_refused_with_the_file_named(tmp_path, offset, data, message):
    folder = write_shards(tmp_path / "t", {"train": {"text": [[5, 6, 7]]}})
    overwrite(folder / "train-text-00000.bin", offset, data)
    with pytest.raises(UserError, match=rf"train-text-00000\.bin: .*{message}"):
        TokenShards(folder, "train")


@pytest.mark.parametrize("size", [0, 60, HEADER, HEADER + 3])
def test_a_file_that_was_cut_off_is_refused(tmp_path, size):
    folder = write_shards(tmp_path / "t", {"train": {"text": [[5, 6, 7]]}})
    path = folder / "train-text-00000.bin"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match=r"train-text-00000\.bin"):
        TokenShards(folder, "train")


def test_changed_tokens_are_found_by_verify(tmp_path):
    folder = write_shards(tmp_path / "t", {"train": {"text": [[5, 6, 7]]}})
    overwrite(folder / "train-text-00000.bin", HEADER, b"\x09")
    with pytest.raises(UserError, match=r"train-text-00000\.bin: .*sha256"):
        TokenShards(folder, "train").verify()


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json", '{"version": 99}'])
def test_a_manifest_that_is_none_is_refused(tmp_path, text):
    folder = write_shards(tmp_path / "t", {"train": {"text": [[5]]}})
    (folder / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json"):
        TokenShards(folder, "train")


def test_offsets_of_another_length_are_refused(tmp_path):
    folder = write_shards(tmp_path / "t", {"train": {"text": [[5], [6]]}})
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["splits"]["train"]["text"]["documents"] = 1
    storage.write_json(folder / "manifest.json", manifest)
    with pytest.raises(UserError, match="do not fit together"):
        TokenShards(folder, "train")
