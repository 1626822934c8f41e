"""A corpus larger than memory: what is held does not grow with it, neither to encode it nor to learn from it."""

import tracemalloc

import numpy as np
import pytest

from lexmill.base import storage
from lexmill.data import encoding
from lexmill.data.encoding import encode_corpus
from lexmill.data.mixture import MixtureBatches, open_train, write_mixture
from lexmill.data.shards import VERSION, ShardWriter, TokenShards
from lexmill.data.windows import WindowBatches, evaluation_documents, evaluation_windows
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.training import train
from tests.data.made_shards import CORPUS, TOKENIZER

MEGABYTES = 1 << 20
DOCUMENT = 1000


def held(work):
    """The most memory, in bytes, that `work` has held of what Python and numpy give out (memory maps take none)."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def made(folder, megabytes):
    """A train split of so many MB of token ids."""
    folder.mkdir()
    writer = ShardWriter(
        folder, "train", "text", vocab_size=300, tokenizer=TOKENIZER, corpus=CORPUS, shard_bytes=4 * MEGABYTES
    )
    rows = np.full(MEGABYTES // 2, 7, dtype=np.uint16)
    lengths = np.full(len(rows) // DOCUMENT, DOCUMENT)
    lengths[-1] += len(rows) - lengths.sum()
    for _ in range(megabytes):
        writer.extend(rows, lengths)
    side = {**writer.close(), "bytes": 0, "unknown": 0}
    special = {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    manifest = {"version": VERSION, "kind": "text", "tokenizer_fingerprint": TOKENIZER, "corpus_fingerprint": CORPUS}
    manifest |= {"vocab_size": 300, "special": special, "splits": {"train": {"text": side}}}
    storage.write_json(folder / "manifest.json", manifest)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("large")
    return made(root / "small", 2), made(root / "large", 64)


def test_batches_hold_the_same_memory_for_any_corpus(folders):
    def learn(folder):
        batches = WindowBatches(TokenShards(folder, "train"), 256, 256 * 32, seed=1)
        for step in range(0, 2000, 50):
            batches.rows(step, 0, 1)
            batches.documents(step, 0, 1)

    small, large = (held(lambda folder=folder: learn(folder)) for folder in folders)
    assert large < small + MEGABYTES // 4


def test_a_mixture_holds_the_same_memory_for_any_corpus(folders, tmp_path):
    def learn(name, source):
        (tmp_path / name).mkdir()
        write_mixture(tmp_path / name, {"a": (source, 1.0), "b": (folders[0], 1.0)})
        batches = MixtureBatches(open_train(tmp_path / name), 256, 256 * 32, seed=1)
        for step in range(0, 500, 50):
            batches.rows(step, 0, 1)

    small, large = (held(lambda folder=folder: learn(folder.name, folder)) for folder in folders)
    assert large < small + MEGABYTES // 4


def test_evaluation_reads_window_after_window(folders):
    def look(folder, count):
        shards = TokenShards(folder, "train")
        windows = zip(evaluation_windows(shards, 256), evaluation_documents(shards, 256), strict=True)
        assert sum(1 for _ in zip(windows, range(count), strict=False)) == count

    small, large = (held(lambda folder=folder: look(folder, 200)) for folder in folders)
    assert large < small + MEGABYTES // 4


@pytest.mark.parametrize("kind", ["byte", "bpe"])
def test_encoding_holds_the_same_memory_for_any_corpus(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(encoding, "_BATCH", 1 << 15)
    tokenizer = Tokenizer(train(kind, lambda: ["the mill was still"], vocab_size=261), "c" * 64)
    text = "the mill was still, " * 50

    def records(megabytes):
        for _ in range(megabytes * MEGABYTES // len(text)):
            yield {"text": text}

    def work(megabytes):
        folder = tmp_path / f"{kind}{megabytes}"
        folder.mkdir()
        encode_corpus(folder, "text", {"train": records(megabytes)}, tokenizer, "d" * 64)
        assert len(TokenShards(folder, "train").tokens) > megabytes * MEGABYTES // 8

    small, large = (held(lambda megabytes=megabytes: work(megabytes)) for megabytes in (1, 8))
    assert large < small + MEGABYTES // 2


def test_what_is_remembered_of_new_words_has_a_bound(monkeypatch):
    from lexmill.tokenizers import bulk

    monkeypatch.setattr(bulk, "CACHED", 2000)
    tokenizer = Tokenizer(train("bpe", lambda: ["the mill was still"], vocab_size=261), "c" * 64)

    def work(lines):
        encoder = bulk.BulkEncoder(tokenizer)
        for line in range(lines):
            encoder.encode([" ".join(f"w{number:o}x" for number in range(100 * line, 100 * line + 100))])

    small, large = held(lambda: work(50)), held(lambda: work(500))
    assert large < 1.3 * small
