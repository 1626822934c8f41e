"""Token shards: a split as one long sequence of token ids on disk, read through memory maps.

    <folder>/manifest.json              version, kind, fingerprints, special ids, counts and shards of each split
    <folder>/<split>-<side>-00000.bin   128-byte header, then token ids, little-endian uint16 or uint32
    <folder>/<split>-<side>.offsets     128-byte header, then the start of each document, int64, documents + 1

Header: magic, version, bytes per item, number of items, sha256 of the tokenizer, of the corpus, of the items.
A side is `text`, or `source` and `target` of a parallel corpus. Each document (or sentence) is followed by the
end token. A document may continue in the next shard. Opening checks headers and sizes; `verify` reads every byte.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from lexmill.base.errors import UserError
from lexmill.base.outside import parsing, read_json_object

MAGIC = b"LEXMILLT"
VERSION = 1
HEADER = 128
SHARD_BYTES = 256 << 20
_LAYOUT = struct.Struct("<8sIIQ32s32s32s")
_AGAIN = "run the encode stage again"

Side = Literal["text", "source", "target"]
Array = npt.NDArray[Any]


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest of uint16 and uint32 that holds every id."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


class _FileWriter:
    """One file of items after a header, which is written last, when count and hash are known."""

    def __init__(self, path: Path, dtype: np.dtype[Any], tokenizer: str, corpus: str) -> None:
        self.path, self.dtype, self.tokenizer, self.corpus = path, dtype, tokenizer, corpus
        self.count, self.digest = 0, hashlib.sha256()
        self.stream: BinaryIO = path.open("wb")
        self.stream.write(b"\0" * HEADER)

    def write(self, items: Array) -> None:
        data = np.ascontiguousarray(items, dtype=self.dtype).tobytes()
        self.digest.update(data)
        self.stream.write(data)
        self.count += len(items)

    def close(self) -> dict[str, Any]:
        hashes = (bytes.fromhex(self.tokenizer), bytes.fromhex(self.corpus), self.digest.digest())
        header = _LAYOUT.pack(MAGIC, VERSION, self.dtype.itemsize, self.count, *hashes)
        self.stream.seek(0)
        self.stream.write(header.ljust(HEADER, b"\0"))
        self.stream.close()
        return {"path": self.path.name, "items": self.count, "sha256": self.digest.hexdigest()}


class ShardWriter:
    """Writes one side of one split, a document at a time; memory O(1).

    Args:
        folder: an existing folder.
        split, side: name the files.
        vocab_size: determines the width of an id.
        tokenizer, corpus: fingerprints, sha256 in hexadecimal.
        shard_bytes: the size of a full shard, in bytes of ids.
    """

    def __init__(
        self,
        folder: Path,
        split: str,
        side: str,
        *,
        vocab_size: int,
        tokenizer: str,
        corpus: str,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        self.folder, self.stem = folder, f"{split}-{side}"
        self.dtype, self.tokenizer, self.corpus = token_dtype(vocab_size), tokenizer, corpus
        self.shard_tokens = max(1, shard_bytes // self.dtype.itemsize)
        self.documents = self.tokens = 0
        self.shards: list[dict[str, Any]] = []
        self.current: _FileWriter | None = None
        self.offsets = _FileWriter(folder / f"{self.stem}.offsets", np.dtype("<i8"), tokenizer, corpus)
        self.offsets.write(np.zeros(1))

    def add(self, ids: Sequence[int] | Array) -> None:
        """Append one document; `ids` ends with the end token."""
        self.extend(np.asarray(ids, dtype=self.dtype), np.array([len(ids)]))

    def extend(self, ids: Array, lengths: Array) -> None:
        """Append documents of these lengths, whose ids are concatenated in `ids`."""
        self.offsets.write(self.tokens + np.cumsum(lengths))
        self.documents += len(lengths)
        self.tokens += len(ids)
        while len(ids):
            if self.current is None:
                path = self.folder / f"{self.stem}-{len(self.shards):05d}.bin"
                self.current = _FileWriter(path, self.dtype, self.tokenizer, self.corpus)
            room = self.shard_tokens - self.current.count
            self.current.write(ids[:room])
            ids = ids[room:]
            if self.current.count == self.shard_tokens:
                self._finish()

    def _finish(self) -> None:
        if self.current is not None:
            self.shards.append(self.current.close())
            self.current = None

    def close(self) -> dict[str, Any]:
        """Close the files; return this side's entry of the manifest."""
        self._finish()
        return {
            "documents": self.documents,
            "tokens": self.tokens,
            "shards": self.shards,
            "offsets": self.offsets.close(),
        }


def _open_items(path: Path, entry: dict[str, Any], dtype: np.dtype[Any], tokenizer: str, corpus: str) -> Array:
    """Check a file's header and size, and map its items into memory."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as stream:
            header = stream.read(HEADER)
    except FileNotFoundError:
        raise UserError(f"the file is missing; {_AGAIN}", path) from None
    if len(header) < HEADER or not header.startswith(MAGIC):
        raise UserError(f"not a token shard (no '{MAGIC.decode()}' at its start); {_AGAIN}", path)
    _, version, width, count, of_tokenizer, of_corpus, digest = _LAYOUT.unpack_from(header)
    if version != VERSION:
        raise UserError(f"version {version} of the token format, this lexmill reads {VERSION}; {_AGAIN}", path)
    if width != dtype.itemsize:
        raise UserError(f"{width} bytes an item, the manifest says {dtype.itemsize}; {_AGAIN}", path)
    wanted = HEADER + count * width
    if size != wanted:
        raise UserError(f"{size} bytes long, its header says {wanted}: cut off or altered; {_AGAIN}", path)
    for what, found, named in (("tokenizer", of_tokenizer, tokenizer), ("corpus", of_corpus, corpus)):
        if found.hex() != named:
            raise UserError(f"made with another {what} than the manifest names; {_AGAIN}", path)
    if count != entry["items"] or digest.hex() != entry["sha256"]:
        raise UserError(f"count or hash differ from the manifest's; {_AGAIN}", path)
    if count == 0:
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=HEADER, shape=(count,))


class TokenArray:
    """Several memory-mapped arrays as one: `array[i]`, `array[a:b]`, `len(array)`. Slices have step 1."""

    def __init__(self, parts: Sequence[Array], dtype: np.dtype[Any]) -> None:
        self.parts, self.dtype = list(parts), dtype
        self.starts = [0]
        for part in parts:
            self.starts.append(self.starts[-1] + len(part))

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, key: int | np.integer[Any] | slice) -> Any:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise ValueError(f"slices of tokens have step 1, not {step}")
            return self._slice(start, stop)
        position = int(key) + len(self) if key < 0 else int(key)
        if not 0 <= position < len(self):
            raise IndexError(f"position {int(key)} of {len(self)} tokens")
        part = bisect_right(self.starts, position) - 1
        return int(self.parts[part][position - self.starts[part]])

    def _slice(self, start: int, stop: int) -> Array:
        if stop <= start:
            return np.empty(0, dtype=self.dtype)
        part = bisect_right(self.starts, start) - 1
        pieces = []
        while start < stop:
            begin, end = self.starts[part], self.starts[part + 1]
            pieces.append(np.asarray(self.parts[part][start - begin : min(stop, end) - begin]))
            start, part = min(stop, end), part + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class TokenShards:
    """One side of one split, read in place.

    Attributes:
        tokens: all ids of the split, `len`, `[i]`, `[a:b]`.
        offsets: (documents + 1,) int64; document i is tokens[offsets[i] : offsets[i + 1]], end token included.
        vocab_size, pad_id, unk_id, bos_id, eos_id: of the tokenizer; unk_id is None where it cannot occur.
        bytes: UTF-8 bytes of the split's text as the tokenizer normalises it.
        unknown: the number of unknown tokens.
        tokenizer_fingerprint, corpus_fingerprint: sha256.

    Raises:
        UserError: a file is missing, cut off, of another version, or does not belong here.
    """

    def __init__(self, folder: str | Path, split: str, side: Side = "text") -> None:
        self.folder, self.split, self.side = Path(folder), split, side
        manifest = read_manifest(self.folder)
        if "splits" not in manifest:
            raise UserError("a mixture of corpora, whose members are read one by one", self.folder)
        with parsing(f"not what the encode stage writes; {_AGAIN}", self.folder / "manifest.json"):
            self._open(manifest)

    def _open(self, manifest: dict[str, Any]) -> None:
        split, side = self.split, self.side
        splits = manifest["splits"]
        if split not in splits:
            raise UserError(f"there is no split '{split}'; there are: {', '.join(sorted(splits))}", self.folder)
        sides = splits[split]
        if side not in sides:
            raise UserError(f"split '{split}' has no side '{side}', but: {', '.join(sorted(sides))}", self.folder)
        entry = sides[side]
        self.tokenizer_fingerprint: str = manifest["tokenizer_fingerprint"]
        self.corpus_fingerprint: str = manifest["corpus_fingerprint"]
        self.vocab_size: int = manifest["vocab_size"]
        special: dict[str, Any] = manifest["special"]
        self.unk_id: int | None = special["unk"]
        self.pad_id, self.bos_id, self.eos_id = (int(special[role]) for role in ("pad", "bos", "eos"))
        self.bytes: int = entry["bytes"]
        self.unknown: int = entry["unknown"]
        dtype = token_dtype(self.vocab_size)
        items = [*entry["shards"], entry["offsets"]]
        self._files = [(self.folder / one["path"], one["sha256"]) for one in items]
        fingerprints = (self.tokenizer_fingerprint, self.corpus_fingerprint)
        parts = [_open_items(self.folder / one["path"], one, dtype, *fingerprints) for one in entry["shards"]]
        self.tokens = TokenArray(parts, dtype)
        path = self.folder / entry["offsets"]["path"]
        self.offsets: npt.NDArray[np.int64] = _open_items(path, entry["offsets"], np.dtype("<i8"), *fingerprints)
        if len(self.offsets) != entry["documents"] + 1 or self.offsets[-1] != len(self.tokens):
            raise UserError(f"offsets and tokens do not fit together; {_AGAIN}", path)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each document, end token included: (documents,)."""
        return np.diff(self.offsets)

    def document(self, i: int) -> Array:
        """The ids of document i, end token included."""
        if not 0 <= i < len(self):
            raise IndexError(f"document {i} of {len(self)}")
        return self.tokens._slice(int(self.offsets[i]), int(self.offsets[i + 1]))

    def verify(self) -> None:
        """Check the sha256 of every file; raise `UserError` for the first that differs."""
        for path, wanted in self._files:
            with open(path, "rb") as stream:
                stream.seek(HEADER)
                digest = hashlib.file_digest(stream, "sha256")
            if digest.hexdigest() != wanted:
                raise UserError(f"its contents do not have the sha256 in its header; {_AGAIN}", path)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a folder of token shards; raise `UserError` for none, or one of another version."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise UserError("there are no token shards here; run the encode stage first", folder)
    try:
        manifest = read_json_object(path)
    except UserError as error:
        raise UserError(f"{error.message}; {_AGAIN}", path, error.line) from None
    if manifest.get("version") != VERSION:
        raise UserError(f"not a version {VERSION} manifest of token shards; {_AGAIN}", path)
    return manifest
