"""Small folders of token shards made without a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lexmill.base import storage
from lexmill.data.shards import VERSION, ShardWriter, TokenShards

TOKENIZER, CORPUS = "a" * 64, "b" * 64
EOS = 3


def write_shards(
    folder: Path,
    splits: dict[str, dict[str, Sequence[Sequence[int]]]],
    vocab_size: int = 300,
    shard_bytes: int = 64,
) -> Path:
    """Write {split: {side: documents}}; an end token is put after each document. Shards are tiny on purpose."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "version": VERSION,
        "kind": "text",
        "tokenizer_fingerprint": TOKENIZER,
        "corpus_fingerprint": CORPUS,
        "vocab_size": vocab_size,
        "special": {"pad": 0, "unk": 1, "bos": 2, "eos": EOS},
        "splits": {},
    }
    for split, sides in splits.items():
        manifest["splits"][split] = {}
        for side, documents in sides.items():
            writer = ShardWriter(
                folder,
                split,
                side,
                vocab_size=vocab_size,
                tokenizer=TOKENIZER,
                corpus=CORPUS,
                shard_bytes=shard_bytes,
            )
            for document in documents:
                writer.add([*document, EOS])
            size = sum(len(document) for document in documents)
            manifest["splits"][split][side] = {**writer.close(), "bytes": size, "unknown": 0}
    storage.write_json(folder / "manifest.json", manifest)
    return folder


def text_shards(folder: Path, documents: Sequence[Sequence[int]], **options: int) -> TokenShards:
    return TokenShards(write_shards(folder, {"train": {"text": documents}}, **options), "train")


def pairs(
    folder: Path, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]
) -> tuple[TokenShards, TokenShards]:
    write_shards(folder, {"train": {"source": source, "target": target}}, shard_bytes=1 << 12)
    return TokenShards(folder, "train", "source"), TokenShards(folder, "train", "target")


def random_documents(count: int, seed: int, longest: int = 30) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(5, 300, random.integers(0, longest)).tolist() for _ in range(count)]
