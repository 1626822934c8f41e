"""Files in UTF-16 and UTF-32: recognised, and read as UTF-8.

Memory is one block of the file.
"""

from __future__ import annotations

import codecs
import io
from pathlib import Path
from typing import Any, BinaryIO

from lexmill.base.errors import UserError

_BLOCK = 1 << 16
_TRIED = 400  # bytes; a multiple of 4
_MARKS = (  # that of UTF-32-LE begins with that of UTF-16-LE
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)


class Transcoded(io.RawIOBase):
    """A file in UTF-16 or UTF-32 as UTF-8, with the byte order mark that it has.

    Without one, `utf-16` and `utf-32` are taken for little-endian, whatever the machine. What precedes a wrong
    character can be read; after it, reading raises `UnicodeDecodeError`. `UserError`: the file is in another encoding.
    """

    def __init__(self, raw: BinaryIO, encoding: str, path: Path) -> None:
        self._raw, self._encoding, self._path = raw, encoding, path
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ready = memoryview(b"")
        self._wrong: UnicodeDecodeError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if self._wrong is not None:
                raise self._wrong
            data = self._raw.read(_BLOCK)
            self._ready = memoryview(self._decoded(data).encode("utf-8"))
            if not data and not self._ready and self._wrong is None:
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _decoded(self, data: bytes) -> str:
        if self._decoder is None:
            self._encoding = _with_byte_order(data, self._encoding, self._path)
            self._decoder = codecs.getincrementaldecoder(self._encoding)()
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            self._wrong = error
            return error.object[: error.start].decode(self._encoding)


def _with_byte_order(start: bytes, encoding: str, path: Path) -> str:
    """The codec of a file with its byte order; raise `UserError` where the start of the file shows another encoding."""
    marked = next((codec for mark, codec in _MARKS if start.startswith(mark)), None)
    if marked is None and b"\0" not in start and _is_utf8(start):
        marked = "utf-8"
    if marked is not None and not marked.startswith(encoding):
        raise UserError(_instead(f"not {encoding.upper()} but {marked.upper()}", marked), path, 1)
    return marked or (encoding if encoding.endswith(("-le", "-be")) else f"{encoding}-le")


def _is_utf8(start: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return bool(start)


def wide_encoding(start: bytes) -> str | None:
    """Return UTF-16 or UTF-32, in which a file seems to be by its first bytes; None: in neither.

    `utf-16` and `utf-32` by a byte order mark; with the byte order where text of letters shows it.
    """
    for mark, codec in _MARKS:
        if codec != "utf-8" and start.startswith(mark):
            return codec[:6]
    if b"\0" not in start:
        return None
    start = start[: min(_TRIED, len(start) // 4 * 4)]
    for _, codec in _MARKS:
        text = start.decode(codec, "replace")
        plain = sum(" " <= character <= "~" for character in text)
        if codec != "utf-8" and text and plain * 2 >= len(text):
            return codec
    return None


def refuse_wide(line: bytes, path: Path) -> None:
    """Raise `UserError` where the first line of a file, as bytes, is UTF-16 or UTF-32."""
    if (encoding := wide_encoding(line)) is not None:
        seems = "is" if encoding in ("utf-16", "utf-32") else "seems to be"
        raise UserError(_instead(f"the file {seems} {encoding.upper()}", encoding), path, 1)


def _instead(wrong: str, encoding: str) -> str:
    return f"{wrong}; set reader.encoding: {encoding} (init: --encoding {encoding}), or reader.encodings for this file"
