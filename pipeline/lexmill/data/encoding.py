"""Turning a prepared corpus into a folder of token shards, as a stream: memory does not grow with the corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from lexmill import storage
from lexmill.data.encoding_processes import Rows, Texts, encoding_map
from lexmill.data.shards import SHARD_BYTES, VERSION, ShardWriter
from lexmill.errors import UserError
from lexmill.tokenizers.tokenizer import Tokenizer

SIDES = {"text": ("text",), "parallel": ("source", "target")}
_BATCH = 1 << 20  # characters encoded at once

Record = dict[str, Any]


def encode_corpus(
    folder: Path,
    kind: str,
    splits: dict[str, Iterable[Record]],
    tokenizer: Tokenizer,
    corpus_fingerprint: str,
    *,
    advance: Callable[[int], None] = lambda characters: None,
    shard_bytes: int = SHARD_BYTES,
    processes: int = 1,
) -> dict[str, Any]:
    """Write the shards and the manifest of a corpus into an existing folder.

    Args:
        folder: an empty folder.
        kind: `text` or `parallel`.
        splits: the records of each split, in corpus order, with a field for each side.
        tokenizer: turns text into ids.
        corpus_fingerprint: sha256 that names the corpus.
        advance: called with the number of characters done.
        shard_bytes: largest shard.
        processes: how many encode at once; the result does not depend on it.

    Returns:
        The manifest.

    Raises:
        UserError: labelled corpora have no shards; a text is not Unicode.
    """
    if kind not in SIDES:
        raise UserError(
            f"a {kind} corpus is not encoded: classifiers read its texts directly; take its entry out of encodings"
        )
    manifest: dict[str, Any] = {
        "version": VERSION,
        "kind": kind,
        "corpus_fingerprint": corpus_fingerprint,
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "special": {
            "pad": tokenizer.pad_id,
            "unk": tokenizer.unk_id,
            "bos": tokenizer.bos_id,
            "eos": tokenizer.eos_id,
        },
        "splits": {},
    }
    with encoding_map(tokenizer, processes) as encode:
        for split, records in splits.items():
            sides = {
                side: _Side(
                    ShardWriter(
                        folder,
                        split,
                        side,
                        vocab_size=tokenizer.vocab_size,
                        tokenizer=tokenizer.fingerprint,
                        corpus=corpus_fingerprint,
                        shard_bytes=shard_bytes,
                    )
                )
                for side in SIDES[kind]
            }
            for encoded in encode(_batches(records, SIDES[kind])):
                for side, rows in zip(sides.values(), encoded.sides, strict=True):
                    side.add(rows)
                advance(encoded.characters)
            manifest["splits"][split] = {name: side.close() for name, side in sides.items()}
    storage.write_json(folder / "manifest.json", manifest)
    return manifest


class _Side:
    """One side of one split on its way to disk."""

    def __init__(self, writer: ShardWriter) -> None:
        self.writer, self.bytes, self.unknown = writer, 0, 0

    def add(self, rows: Rows) -> None:
        self.writer.extend(rows.ids, rows.lengths)
        self.bytes += rows.bytes
        self.unknown += rows.unknown

    def close(self) -> dict[str, Any]:
        return {**self.writer.close(), "bytes": self.bytes, "unknown": self.unknown}


def _batches(records: Iterable[Record], fields: tuple[str, ...]) -> Iterator[Texts]:
    """The texts of records, side by side, in groups of about _BATCH characters."""
    sides: tuple[list[str], ...] = tuple([] for _ in fields)
    characters = 0
    for record in records:
        for side, field in zip(sides, fields, strict=True):
            text = record[field]
            side.append(text)
            characters += len(text)
        if characters >= _BATCH:
            yield Texts(sides, characters)
            sides, characters = tuple([] for _ in fields), 0
    if sides[0]:
        yield Texts(sides, characters)


def metrics(manifest: dict[str, Any]) -> dict[str, Any]:
    """Counts of each split (and side of a parallel corpus); tokens include the end tokens."""
    found: dict[str, Any] = {"vocab_size": manifest["vocab_size"]}
    for split, sides in manifest["splits"].items():
        for side, entry in sides.items():
            numbers = {key: entry[key] for key in ("documents", "tokens", "bytes", "unknown")}
            if entry["bytes"]:
                numbers["tokens_per_byte"] = entry["tokens"] / entry["bytes"]
            found[split if side == "text" else f"{split}_{side}"] = numbers
    return found
