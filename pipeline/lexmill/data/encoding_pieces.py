"""Encode a corpus in independent pieces on workers: the same shards as those of `encode_corpus`.

A piece is a range of bytes of one file of the prepared corpus; a record belongs to the piece in which its line begins.
A worker writes two files a side to the scratch folder, concatenated ids and lengths without headers; the stage reads
them in corpus order, a bounded block at a time, and deletes them. Cost: the ids are written twice; memory of a worker
O(largest document).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lexmill.base.errors import UserError
from lexmill.compute.workers.executor import Advance, Executor, Plain
from lexmill.compute.workers.files import await_file, cut_off, own_name
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.encoding import Rows, encode_records, sides_of, write_shards
from lexmill.data.shards import SHARD_BYTES, token_dtype
from lexmill.tokenizers.bulk import BulkEncoder
from lexmill.tokenizers.tokenizer import load

_BLOCK = 1 << 10  # documents read back at once
_SKIP = 1 << 16  # bytes


def encode_pieces(
    folder: Path,
    corpus: PreparedCorpus,
    tokenizer: Path,
    corpus_fingerprint: str,
    *,
    executor: Executor,
    scratch: Path,
    advance: Callable[[int], None] = lambda characters: None,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, Any]:
    """Encode a prepared corpus through an executor, write it as shards and return the manifest.

    Args:
        folder: an empty folder.
        corpus: of kind `text` or `parallel`.
        tokenizer: the folder of the tokenizer.
        corpus_fingerprint: sha256 of the corpus.
        executor: encodes the pieces.
        scratch: a folder shared with its workers.
        advance: called with the number of characters encoded.
        shard_bytes: the maximum size of a shard.

    Raises:
        UserError: labelled corpora have no shards; a text is not Unicode.
        RetryableError: a worker was lost.
    """
    sides, loaded = sides_of(corpus.kind), load(tokenizer)
    common = {
        "sides": list(sides),
        "corpus": str(corpus.folder.absolute()),
        "shown": str(corpus.folder),
        "tokenizer": str(tokenizer.absolute()),
        "fingerprint": loaded.fingerprint,
        "scratch": str(scratch.absolute()),
    }
    pieces = {split: cut(corpus, split, executor.piece_bytes) for split in sorted(corpus.manifest["splits"])}
    results = executor.map(encode_piece, common, [one for split in pieces.values() for one in split], advance)
    dtype = token_dtype(loaded.vocab_size)

    def encoded(split: str) -> Iterator[tuple[str, Rows]]:
        for result in islice(results, len(pieces[split])):
            yield from _read_back(scratch, result, dtype)

    splits = {split: encoded(split) for split in pieces}
    manifest = write_shards(folder, corpus.kind, splits, loaded, corpus_fingerprint, shard_bytes=shard_bytes)
    rest = next(results, None)  # reaching the end raises the errors of all pieces
    assert rest is None
    return manifest


def cut(corpus: PreparedCorpus, split: str, piece_bytes: int) -> list[Plain]:
    """Return ranges of at most `piece_bytes` that cover the files of a split, in corpus order."""
    found: list[Plain] = []
    for shard in corpus.manifest["splits"][split]["shards"]:
        size = (corpus.folder / shard["path"]).stat().st_size
        found += [
            {"path": shard["path"], "begin": begin, "end": min(begin + piece_bytes, size)}
            for begin in range(0, size, piece_bytes)
        ]
    return found


def encode_piece(item: Plain, advance: Advance) -> Plain:
    """Encode one piece (`lexmill.compute.workers`); return its files and their counts."""
    encoder = _encoder(item)
    sides = tuple(item["sides"])
    name = own_name(f"{item['path']}-{item['begin']}")
    stem = Path(item["scratch"]) / name
    dtype = token_dtype(encoder.tokenizer.vocab_size)
    counts = {side: {"ids": 0, "documents": 0, "bytes": 0, "unknown": 0} for side in sides}
    with ExitStack() as stack:
        files = {
            (side, what): stack.enter_context(open(_file(stem, side, what), "xb"))
            for side in sides
            for what in ("ids", "lengths")
        }
        records = _records(Path(item["corpus"]) / item["path"], item["begin"], item["end"])
        try:
            for side, rows in encode_records(records, sides, encoder, advance):
                files[side, "ids"].write(rows.ids.astype(dtype, copy=False).data)
                files[side, "lengths"].write(rows.lengths.astype("<i8", copy=False).data)
                count = counts[side]
                count["ids"] += len(rows.ids)
                count["documents"] += len(rows.lengths)
                count["bytes"] += rows.bytes
                count["unknown"] += rows.unknown
        except UserError:
            raise _located(item, sides) from None
    return {"name": name, "sides": counts}


class _Mine(threading.local):
    """The encoder of a thread: a worker of a cluster may have several threads, and encoders are not thread-safe."""

    run = ""
    encoder: BulkEncoder | None = None


_mine = _Mine()


def _encoder(item: Plain) -> BulkEncoder:
    """The encoder of this thread, which caches chunks across the pieces of one run."""
    if _mine.encoder is None or _mine.run != item["scratch"]:
        folder = item["tokenizer"]
        tokenizer = load(folder)
        if tokenizer.fingerprint != item["fingerprint"]:
            raise UserError("not the tokenizer that the stage has read; is the folder shared by all machines?", folder)
        _mine.encoder, _mine.run = BulkEncoder(tokenizer), item["scratch"]
    return _mine.encoder


def _records(path: Path, begin: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield the records whose lines begin in bytes [begin, end); raise `RetryableError` if the file ends earlier."""
    try:
        stream = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        raise cut_off(path, end) from None
    with stream:
        if begin:
            stream.seek(begin - 1)
            while stream.tell() < end:  # the line before may be larger than this piece, and than memory
                part = stream.readline(min(_SKIP, end - stream.tell()))
                if not part or part.endswith(b"\n"):
                    break
        while stream.tell() < end:
            line = stream.readline()
            if not line.endswith(b"\n"):  # as every line of a prepared corpus does
                raise cut_off(path, max(end, stream.tell() + 1))
            yield json.loads(line)


def _located(item: Plain, sides: Sequence[str]) -> UserError:
    """The error for the first text of a piece that is not Unicode, with its line."""
    path = Path(item["corpus"]) / item["path"]
    with open(path, "rb") as stream:
        at = 0
        for number, line in enumerate(stream, 1):
            record = json.loads(line) if item["begin"] <= at < item["end"] else {}
            at += len(line)
            for side in sides:
                try:
                    record.get(side, "").encode("utf-8")
                except UnicodeEncodeError as error:
                    what = f"a lone surrogate {record[side][error.start]!r} at character {error.start} of '{side}'"
                    place = Path(item["shown"]) / item["path"]
                    return UserError(f"the text is not Unicode: {what}; prepare the corpus again", place, number)
    raise AssertionError(f"every text of {path} is Unicode")


def _file(stem: Path, side: str, what: str) -> Path:
    return stem.with_name(f"{stem.name}.{side}.{what}")


def _read_back(scratch: Path, result: Plain, dtype: np.dtype[Any]) -> Iterator[tuple[str, Rows]]:
    """Yield a worker's output, a bounded block at a time, and delete its files."""
    stem = scratch / result["name"]
    for side, count in result["sides"].items():
        ids_file, lengths_file = _file(stem, side, "ids"), _file(stem, side, "lengths")
        await_file(ids_file, dtype.itemsize * count["ids"])
        await_file(lengths_file, 8 * count["documents"])
        bytes_left, unknown_left = count["bytes"], count["unknown"]
        with open(ids_file, "rb") as ids, open(lengths_file, "rb") as lengths:
            while len(block := np.fromfile(lengths, "<i8", _BLOCK)):
                rows = np.fromfile(ids, dtype, int(block.sum()))
                yield side, Rows(rows, block, bytes_left, unknown_left)
                bytes_left = unknown_left = 0
        ids_file.unlink()
        lengths_file.unlink()
