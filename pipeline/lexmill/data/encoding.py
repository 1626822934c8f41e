"""Encode a prepared corpus into a folder of token shards, as a stream: memory does not grow with the corpus.

Records are encoded in this process (`encode_corpus`) or in pieces on the workers of an executor
(`lexmill.data.encoding_pieces`); the results are written here, in corpus order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.data.shards import SHARD_BYTES, VERSION, ShardWriter
from lexmill.tokenizers.bulk import BulkEncoder
from lexmill.tokenizers.tokenizer import Tokenizer

SIDES = {"text": ("text",), "parallel": ("source", "target")}
_BATCH = 1 << 20  # characters encoded at once

Record = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """Documents as concatenated ids, each with its end token; the total of their bytes and unknown tokens."""

    ids: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64]
    bytes: int
    unknown: int


def encode_corpus(
    folder: Path,
    kind: str,
    splits: dict[str, Iterable[Record]],
    tokenizer: Tokenizer,
    corpus_fingerprint: str,
    *,
    advance: Callable[[int], None] = lambda characters: None,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, Any]:
    """Encode the records of a corpus in this process, write them as shards and return the manifest.

    Args:
        folder: an empty folder.
        kind: `text` or `parallel`.
        splits: the records of each split, in corpus order, with a field for each side.
        tokenizer: turns text into ids.
        corpus_fingerprint: sha256 of the corpus.
        advance: called with the number of characters encoded.
        shard_bytes: the maximum size of a shard.

    Raises:
        UserError: labelled corpora have no shards; a text is not Unicode.
    """
    sides, encoder = sides_of(kind), BulkEncoder(tokenizer)
    encoded = {split: encode_records(records, sides, encoder, advance) for split, records in splits.items()}
    return write_shards(folder, kind, encoded, tokenizer, corpus_fingerprint, shard_bytes=shard_bytes)


def sides_of(kind: str) -> tuple[str, ...]:
    """Return the fields of a record to encode; raise `UserError` for a kind without shards."""
    if kind not in SIDES:
        raise UserError(f"a {kind} corpus is not encoded: its texts are read directly; take its entry out of encodings")
    return SIDES[kind]


def encode_records(
    records: Iterable[Record], sides: tuple[str, ...], encoder: BulkEncoder, advance: Callable[[int], None]
) -> Iterator[tuple[str, Rows]]:
    """Encode a stream of records, about a million characters at a time; yield the rows of each side in turn.

    Args:
        records, sides: with a field for each of these sides.
        encoder: turns texts into ids; the end token is added.
        advance: called with the number of characters encoded.
    """
    for texts, characters in _batches(records, sides):
        yield from [(side, _rows(encoder.of(side), column)) for side, column in zip(sides, texts, strict=True)]
        advance(characters)


def _rows(encoder: BulkEncoder, texts: list[str]) -> Rows:
    tokenizer = encoder.tokenizer
    normal = [tokenizer.normalize(text) for text in texts]
    ids, lengths = encoder.encode_normal(normal)
    unknown = 0 if tokenizer.unk_id is None else int((ids == tokenizer.unk_id).sum())
    size = sum(len(text.encode("utf-8")) for text in normal)
    return Rows(np.insert(ids, np.cumsum(lengths), tokenizer.eos_id), lengths + 1, size, unknown)


def _batches(records: Iterable[Record], fields: tuple[str, ...]) -> Iterator[tuple[tuple[list[str], ...], int]]:
    """Yield the texts of records by side, in groups of about _BATCH characters, with the number of characters."""
    sides: tuple[list[str], ...] = tuple([] for _ in fields)
    characters = 0
    for record in records:
        for side, field in zip(sides, fields, strict=True):
            side.append(record[field])
            characters += len(record[field])
        if characters >= _BATCH:
            yield sides, characters
            sides, characters = tuple([] for _ in fields), 0
    if sides[0]:
        yield sides, characters


def write_shards(
    folder: Path,
    kind: str,
    splits: dict[str, Iterator[tuple[str, Rows]]],
    tokenizer: Tokenizer,
    corpus_fingerprint: str,
    *,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, Any]:
    """Write encoded rows, in corpus order, and the manifest; return the manifest (see `encode_corpus`)."""
    manifest: dict[str, Any] = {
        "version": VERSION,
        "kind": kind,
        "corpus_fingerprint": corpus_fingerprint,
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "special": {"pad": tokenizer.pad_id, "unk": tokenizer.unk_id, "bos": tokenizer.bos_id, "eos": tokenizer.eos_id},
        "splits": {},
    }
    writer = partial(
        ShardWriter,
        folder,
        vocab_size=tokenizer.vocab_size,
        tokenizer=tokenizer.fingerprint,
        corpus=corpus_fingerprint,
        shard_bytes=shard_bytes,
    )
    for split, stream in splits.items():
        sides = {side: _Side(writer(split, side)) for side in sides_of(kind)}
        for side, rows in stream:
            sides[side].add(rows)
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


def metrics(manifest: dict[str, Any]) -> dict[str, Any]:
    """The counts of each split (and side of a parallel corpus); tokens include the end tokens."""
    found: dict[str, Any] = {"vocab_size": manifest["vocab_size"]}
    for split, sides in manifest["splits"].items():
        for side, entry in sides.items():
            numbers = {key: entry[key] for key in ("documents", "tokens", "bytes", "unknown")}
            if entry["bytes"]:
                numbers["tokens_per_byte"] = entry["tokens"] / entry["bytes"]
            found[split if side == "text" else f"{split}_{side}"] = numbers
    return found
