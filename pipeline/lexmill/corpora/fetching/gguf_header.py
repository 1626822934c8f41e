"""Checks the header of a GGUF file before the library reads it: it trusts every count and length in it.

Layout (ggml's gguf.md, versions 2 and 3): magic, version, number of tensors, number of keys; for each key its name,
type and value; for each tensor its name, shape, type and offset. Cost: one pass over the header, O(1) memory.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from lexmill.base.budgets import MAX_GGUF_ITEMS, MAX_GGUF_KEYS
from lexmill.base.errors import UserError

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a scalar by its type
_TEXT, _ARRAY = 8, 9
_MAX_AXES = 4
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


def check_header(path: Path) -> None:
    """Raise `UserError` for a header whose lengths do not fit into the file, or whose counts are over budget."""
    with open(path, "rb") as stream:
        _Header(stream, path.name).check()


class _Header:
    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name
        self._left = os.fstat(stream.fileno()).st_size

    def check(self) -> None:
        if self._take(4) != b"GGUF":
            raise UserError(f"{self._name} is not a GGUF file")
        version = self._u32()
        if version not in (2, 3):
            raise UserError(f"{self._name} is a GGUF file of version {version}; versions 2 and 3 are read")
        tensors, keys = (self._count("tensors", MAX_GGUF_KEYS), self._count("keys", MAX_GGUF_KEYS))
        for _ in range(keys):
            self._text()
            self._value(self._u32())
        for _ in range(tensors):
            self._text()
            axes = self._u32()
            if axes > _MAX_AXES:
                raise UserError(f"{self._name} is damaged: a tensor of {axes:,} axes")
            self._take(8 * axes + 4 + 8)

    def _value(self, kind: int) -> None:
        if kind == _TEXT:
            self._text()
        elif kind == _ARRAY:
            inner, count = self._u32(), self._count("items of an array", MAX_GGUF_ITEMS)
            if inner == _TEXT:
                for _ in range(count):
                    self._text()
            else:
                self._skip(count * self._size(inner))
        else:
            self._skip(self._size(kind))

    def _size(self, kind: int) -> int:
        if kind not in _SIZES:
            raise UserError(f"{self._name} is damaged: a value of type {kind}")
        return _SIZES[kind]

    def _text(self) -> None:
        self._skip(self._u64())

    def _count(self, what: str, most: int) -> int:
        count = self._u64()
        if count > most:
            raise UserError(f"{self._name} claims {count:,} {what}, more than {most:,}; it was not used")
        return count

    def _u32(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def _u64(self) -> int:
        return int(_U64.unpack(self._take(8))[0])

    def _take(self, size: int) -> bytes:
        self._spend(size)
        return self._stream.read(size)

    def _skip(self, size: int) -> None:
        self._spend(size)
        self._stream.seek(size, os.SEEK_CUR)

    def _spend(self, size: int) -> None:
        if size > self._left:
            raise UserError(f"{self._name} is damaged: its header claims {size:,} bytes where {self._left:,} are left")
        self._left -= size
