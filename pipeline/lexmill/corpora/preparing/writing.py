"""Writing a prepared corpus: JSON lines in shards for each split, counted and hashed as they are written."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

from lexmill.corpora.prepared import texts_of
from lexmill.corpora.preparing.disk_index import DiskSet
from lexmill.corpora.preparing.record import Record, text_key

SHARD_BYTES = 64 << 20
_encoder = json.JSONEncoder(ensure_ascii=False)


def to_json(record: Record, group: str) -> dict[str, Any]:
    """A record as it is stored."""
    if record.turns:
        said = [*record.turns, ("assistant", record.target)]
        messages = [{"role": role, "content": content} for role, content in said]
        rejected = {} if record.rejected is None else {"rejected": record.rejected}
        return {"id": record.id, "group": group, "messages": messages, **rejected}
    if record.answers is not None:
        answers = [{"text": text, "start": start} for text, start in record.answers]
        about = {"question": record.target, "context": record.text}
        return {"id": record.id, "group": group, **about, "answers": answers}
    if record.target is not None and record.label is None:
        return {"id": record.id, "group": group, "source": record.text, "target": record.target}
    if record.words:
        return {"id": record.id, "group": group, "words": list(record.words), "tags": list(record.tags)}
    stored = {"id": record.id, "group": group, "text": record.text}
    if record.target is not None:
        stored["second"] = record.target
    if record.label is not None:
        stored["label"] = record.label
    return stored


def json_line(stored: dict[str, Any]) -> bytes:
    """A stored record as one line of UTF-8 JSON."""
    return _encoder.encode(stored).encode("utf-8") + b"\n"


class Row(NamedTuple):
    """What the later steps need of a record that passed the filters, without its text.

    Attributes:
        key, first, group: `text_key` of all its sides, of its text or source side, and of its group.
        split, given: the index of its split among those of its piece, and whether the data's owners put it there.
        line: bytes of its line (`json_line`).
        characters, size, words: of its texts, both sides of a pair together; the size in bytes of UTF-8.
    """

    key: bytes
    first: bytes
    group: bytes
    split: int
    given: bool
    line: int
    characters: int
    size: int
    words: int

    @classmethod
    def of(cls, stored: dict[str, Any], split: int, line: bytes, *, given: bool = False) -> Row:
        """Measure a stored record."""
        texts = texts_of(stored)
        return cls(
            text_key(*texts),
            text_key(texts[0]),
            text_key(stored["group"]),
            split,
            given,
            len(line),
            sum(map(len, texts)),
            sum(len(text.encode("utf-8")) for text in texts),
            sum(len(text.split()) for text in texts),
        )


ROW = struct.Struct("<16s16s16sB?IIII")
"""A `Row` on disk; no document is larger than 64 MiB, and its line at most six times that."""


class SplitWriter:
    """Writes the shards of one split and counts what goes into them."""

    def __init__(self, folder: Path, split: str, groups: DiskSet, shard_bytes: int = SHARD_BYTES) -> None:
        """
        Args:
            folder: the corpus folder.
            split: its name.
            groups: an empty set, to count distinct groups.
            shard_bytes: a shard is closed before a record that would make it larger.
        """
        self._folder, self._split, self._groups, self._limit = folder, split, groups, shard_bytes
        self._stream: io.BufferedWriter | None = None
        self._digest = hashlib.sha256()
        self._shards: list[dict[str, Any]] = []
        self.records = self._characters = self._bytes = self._words = 0

    def write(self, line: bytes, row: Row) -> None:
        """Append a record: its line from `json_line` and its row."""
        stream = self._stream
        if stream is None or self._shards[-1]["bytes"] + len(line) > self._limit:
            stream = self._next_shard()
        stream.write(line)
        self._digest.update(line)
        shard = self._shards[-1]
        shard["records"] += 1
        shard["bytes"] += len(line)
        self._groups.add(row.group)
        self.records += 1
        self._characters += row.characters
        self._bytes += row.size
        self._words += row.words

    def _next_shard(self) -> io.BufferedWriter:
        self.close()
        name = f"{self._split}-{len(self._shards):05d}.jsonl"
        self._stream = io.BufferedWriter(io.FileIO(self._folder / name, "w"), 1 << 20)
        self._digest = hashlib.sha256()
        self._shards.append({"path": name, "records": 0, "bytes": 0})
        return self._stream

    def close(self) -> None:
        """Close the open shard; closing twice does nothing."""
        if self._stream is not None:
            self._stream.close()
            self._shards[-1]["sha256"] = self._digest.hexdigest()
            self._stream = None

    def manifest(self) -> dict[str, Any]:
        """Return the split's part of the manifest; characters, bytes (UTF-8) and words include both sides of a pair."""
        self.close()
        return {
            "records": self.records,
            "groups": len(self._groups),
            "characters": self._characters,
            "bytes": self._bytes,
            "words": self._words,
            "shards": self._shards,
        }
