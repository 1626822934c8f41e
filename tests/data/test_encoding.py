"""A prepared corpus as token shards: the ids of each text, whatever the batch and shard size."""

import numpy as np
import pytest

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.data import encoding
from lexmill.data.encoding import encode_corpus, metrics
from lexmill.data.shards import TokenShards
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.training import train

TEXTS = ["Über the hill,\nand down.", "", "a  b\n\nc", "The mill was still. " * 20]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train("wordpiece", lambda: TEXTS[2:], vocab_size=60, lowercase=True), "c" * 64)


def encode(folder, tokenizer, kind="text", splits=None, **options):
    folder.mkdir()
    splits = splits or {"train": [{"text": text} for text in TEXTS], "valid": []}
    return encode_corpus(folder, kind, splits, tokenizer, "d" * 64, **options)


def test_each_text_is_its_ids_and_the_end_token(tmp_path, tokenizer):
    seen = []
    manifest = encode(tmp_path / "t", tokenizer, advance=seen.append)
    shards = TokenShards(tmp_path / "t", "train")
    shards.verify()
    assert [shards.document(i).tolist() for i in range(4)] == [[*tokenizer.encode(text), 3] for text in TEXTS]
    assert shards.bytes == sum(len(tokenizer.normalize(text).encode()) for text in TEXTS)
    assert shards.unknown == sum(tokenizer.encode(text).count(1) for text in TEXTS) > 0
    assert (shards.tokenizer_fingerprint, shards.corpus_fingerprint) == ("c" * 64, "d" * 64)
    assert len(TokenShards(tmp_path / "t", "valid")) == 0
    assert sum(seen) == sum(map(len, TEXTS))
    assert storage.read_json(tmp_path / "t" / "manifest.json") == manifest


@pytest.mark.parametrize("shard_bytes", [2, 64, 1 << 20])
@pytest.mark.parametrize("batch", [1, 40, 1 << 20])
def test_batches_and_shards_change_no_token(tmp_path, tokenizer, monkeypatch, batch, shard_bytes):
    encode(tmp_path / "a", tokenizer)
    monkeypatch.setattr(encoding, "_BATCH", batch)
    encode(tmp_path / "b", tokenizer, shard_bytes=shard_bytes)
    a, b = TokenShards(tmp_path / "a", "train"), TokenShards(tmp_path / "b", "train")
    assert np.array_equal(a.tokens[:], b.tokens[:])
    assert np.array_equal(a.offsets, b.offsets)
    if shard_bytes == 1 << 20:
        assert storage.sha256_folder(tmp_path / "a") == storage.sha256_folder(tmp_path / "b")


def test_both_sides_of_a_parallel_corpus_stay_in_step(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(encoding, "_BATCH", 30)
    pairs = [{"source": a, "target": b} for a, b in zip(TEXTS, reversed(TEXTS), strict=True)]
    manifest = encode(tmp_path / "t", tokenizer, "parallel", {"train": pairs})
    source, target = (TokenShards(tmp_path / "t", "train", side) for side in ("source", "target"))
    assert len(source) == len(target) == 4
    for i, pair in enumerate(pairs):
        assert source.document(i).tolist() == [*tokenizer.encode(pair["source"]), 3]
        assert target.document(i).tolist() == [*tokenizer.encode(pair["target"]), 3]
    assert set(metrics(manifest)) == {"vocab_size", "train_source", "train_target"}


def test_metrics_count_tokens_with_their_end_tokens(tmp_path, tokenizer):
    found = metrics(encode(tmp_path / "t", tokenizer))
    tokens = sum(len(tokenizer.encode(text)) + 1 for text in TEXTS)
    assert found["train"]["tokens"] == tokens
    assert found["train"]["tokens_per_byte"] == tokens / found["train"]["bytes"]
    assert found["valid"] == {"documents": 0, "tokens": 0, "bytes": 0, "unknown": 0}


def test_a_labelled_corpus_is_refused(tmp_path, tokenizer):
    with pytest.raises(UserError, match="a labelled corpus is not encoded"):
        encode(tmp_path / "t", tokenizer, "labelled")


def test_text_that_is_not_unicode_is_refused(tmp_path, tokenizer):
    with pytest.raises(UserError, match="lone surrogate"):
        encode(tmp_path / "t", tokenizer, splits={"train": [{"text": "a\ud83d"}]})
