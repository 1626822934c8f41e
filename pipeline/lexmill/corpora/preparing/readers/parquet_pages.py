"""The sizes that the pages of a parquet file claim, checked before pyarrow allocates what they say.

pyarrow believes a page's header: 30 bytes that claim 2 GiB cost 2 GiB, whatever the file's metadata says. A header is a
struct in Thrift's compact protocol (https://github.com/apache/parquet-format, PageHeader); its third field leads to the
next page.
Cost: one small read a page, and writers make pages of about 1 MiB.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from lexmill.base.budgets import MAX_PAGE_BYTES, MIB
from lexmill.base.errors import UserError

_UNCOMPRESSED, _COMPRESSED = 2, 3
_HEADER_BYTES = 1 << 16  # an order of magnitude above headers with statistics
_MOST_DEPTH = 8  # a header's structs are two deep
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


def check_pages(file: Path, chunk: Any) -> None:
    """Raise `UserError` where a page of a column chunk (pyarrow's metadata of it) claims more than the budget."""
    first = [chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else None]
    at = start = min(offset for offset in first if offset is not None)
    with file.open("rb") as stream:
        while at < start + chunk.total_compressed_size:
            sizes, length = _header(stream, at, file)
            claimed, stored = sizes.get(_UNCOMPRESSED, -1), sizes.get(_COMPRESSED, -1)
            if stored < 0 or claimed < 0:
                raise UserError(f"not a readable parquet file (the page at byte {at:,} has no size)", file)
            if claimed > MAX_PAGE_BYTES:
                raise UserError(
                    f"the page at byte {at:,} claims {claimed:,} bytes, more than {MAX_PAGE_BYTES // MIB} MiB; write it"
                    " with smaller pages",
                    file,
                )
            at += length + stored


def _header(stream: IO[bytes], at: int, file: Path) -> tuple[dict[int, int], int]:
    """Return the whole numbers of the header at a place by their field, and its length."""
    stream.seek(at)
    cursor = _Cursor(stream.read(_HEADER_BYTES))
    try:
        return cursor.struct(0), cursor.at
    except (IndexError, ValueError):
        raise UserError(f"not a readable parquet file (no page at byte {at:,})", file) from None


class _Cursor:
    """Reads Thrift's compact protocol; raises IndexError at the end of the data, ValueError for what is none of it."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int) -> dict[int, int]:
        if depth > _MOST_DEPTH:
            raise ValueError
        found, field = {}, 0
        while byte := self._byte():
            field = field + (byte >> 4) if byte >> 4 else _signed(self._varint())
            if (kind := byte & 15) in (_I16, _I32, _I64):
                found[field] = _signed(self._varint())
            elif kind not in (_TRUE, _FALSE):  # those are the value itself
                self._skip(kind, depth)
        return found

    def _skip(self, kind: int, depth: int) -> None:
        if kind in (_I16, _I32, _I64):
            self._varint()
        elif kind in (_TRUE, _FALSE, _BYTE):
            self.at += 1
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            length = self._varint()
            self.at += length
        elif kind == _STRUCT:
            self.struct(depth + 1)
        elif kind in (_LIST, _SET):
            byte = self._byte()
            size = byte >> 4 if byte >> 4 < 15 else self._varint()
            for _ in range(size):
                self._skip(byte & 15, depth + 1)
                self._data[self.at - 1]  # within the data, so that a claimed size is no work
        else:  # a header has no map
            raise ValueError

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value, shift = 0, 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError
        return value | byte << shift


def _signed(number: int) -> int:
    """Undo zigzag: 0, -1, 1, -2 ... are written as 0, 1, 2, 3 ..."""
    return number >> 1 ^ -(number & 1)
