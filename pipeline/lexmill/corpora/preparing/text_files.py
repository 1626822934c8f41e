"""Read text files safely: bounded lines, gzip and zstd detected by their first bytes, errors with file and line.

A line ends at "\\n" and nowhere else (U+0085, U+2028 and form feed stay inside it); one "\\r" before it and one byte
order mark at the start of the file are dropped. UTF-16 and UTF-32 are read as UTF-8 (`transcoding`). Memory is bounded
by `MAX_LINE_BYTES`, for a whole file by `MAX_DOCUMENT_BYTES`. An uncompressed file can be read from any line with a
known offset.
"""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from lexmill.base.budgets import MAX_DOCUMENT_BYTES, MAX_LINE_BYTES
from lexmill.base.encodings import WIDE
from lexmill.base.errors import UserError
from lexmill.corpora.preparing.transcoding import Transcoded, refuse_wide

COMPRESSED_SUFFIXES = (".gz", ".zst")

Advance = Callable[[int], None]


class Place(NamedTuple):
    """The byte offset of a line in its file, and its number from 1."""

    offset: int
    line: int


class TextFile(NamedTuple):
    """The path of a text file, and the codec of its text."""

    path: Path
    encoding: str


START = Place(0, 1)
NO_STOP = sys.maxsize
"""As the line to stop before: read to the end."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A zstd block of 4 bytes can decompress to 128 KiB: a bounded input bounds the output.
_ZSTD_INPUT_BYTES = 4096


def no_advance(_count: int) -> None:
    """Report no progress."""


class _Counted(io.RawIOBase):
    """A raw file that calls `advance` with the number of bytes read."""

    def __init__(self, path: Path, advance: Advance, offset: int) -> None:
        self._file = io.FileIO(path)
        self._file.seek(offset)
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        self._advance(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class _Zstandard(io.RawIOBase):
    """The decompressed bytes of one or more zstd frames; a truncated frame is an error, not an end."""

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._raw = raw
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None
        self._pending = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._pending or self._raw.read(_ZSTD_INPUT_BYTES)
            self._pending = b""
            if not data:
                if self._frame is not None:
                    raise EOFError("the file ends inside a zstd frame")
                return 0
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            self._ready = memoryview(self._frame.decompress(data))
            if self._frame.eof:
                self._pending, self._frame = self._frame.unused_data, None
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def is_compressed(path: Path) -> bool:
    """Return whether a file is gzip or zstd, by its first bytes; raise `OSError` where it cannot be read."""
    with open(path, "rb") as stream:
        return stream.read(4).startswith((_GZIP_MAGIC, _ZSTD_MAGIC))


@contextmanager
def open_bytes(path: Path, advance: Advance = no_advance, offset: int = 0) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed if it is gzip or zstd.

    Args:
        path: the file.
        advance: called with the number of (compressed) bytes after each read.
        offset: the first byte to read, of an uncompressed file.

    Raises:
        UserError: the file does not exist or cannot be read, or what is compressed is cut off or damaged.
    """
    try:
        buffered = io.BufferedReader(_Counted(path, advance, offset), 1 << 16)
    except FileNotFoundError:
        raise UserError("the file does not exist; fetch the corpus again", path) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", path) from None
    with buffered:
        raw = cast(BinaryIO, buffered)
        try:
            start = b"" if offset else buffered.peek(4)[:4]
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror})", path) from None
        plain: io.RawIOBase | gzip.GzipFile | None = None
        if start.startswith(_GZIP_MAGIC):
            plain = gzip.GzipFile(fileobj=raw)
        elif start.startswith(_ZSTD_MAGIC):
            plain = _Zstandard(raw)
        try:
            yield raw if plain is None else cast(BinaryIO, io.BufferedReader(plain, 1 << 16))
        except Exception as error:
            # Who knows the line has said so; and Typer takes an `EOFError` for the end of what a user types.
            raise (error_of_reading(error, path, None) if plain is not None else error) from None


def error_of_reading(error: Exception, path: Path, line: int | None) -> Exception:
    """Return what to raise for an error of reading a file: a `UserError` with the line, or the error if it is a bug."""
    if isinstance(error, OSError) and error.errno is not None:
        return UserError(f"cannot be read ({error.strerror})", path, line)
    if isinstance(error, UnicodeDecodeError):
        return UserError(f"not {error.encoding.upper()} ({error.reason})", path, line)
    damaged = isinstance(error, EOFError | zlib.error | gzip.BadGzipFile)
    if damaged or type(error).__module__.startswith("zstandard"):
        message = f"the compressed file is cut off or damaged ({error}); fetch or compress it again"
        return UserError(message, path, line)
    return error


def _raw_lines(
    path: Path, encoding: str, advance: Advance, *, place: Place = START, stop: int = NO_STOP
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file as (number from 1, bytes with their "\\n"), of a wide encoding as UTF-8.

    Args:
        path, encoding: the file, and the codec of its text.
        advance: called with the number of (compressed) bytes after each read.
        place: the first line to read; of a compressed file, or one in a wide encoding, only the start.
        stop: the number of the line to stop before.

    Raises:
        UserError: with the line, for a line over `MAX_LINE_BYTES`, a NUL byte (a binary file), UTF-16 under another
            encoding, or damaged compression.
    """
    number = place.line - 1
    with open_bytes(path, advance, place.offset) as opened:
        wide = encoding in WIDE
        stream = io.BufferedReader(Transcoded(opened, encoding, path), 1 << 16) if wide else opened
        while number + 1 < stop:
            try:
                line = stream.readline(MAX_LINE_BYTES + 1)
            except Exception as error:
                raise error_of_reading(error, path, number + 1) from None
            if not line:
                return
            number += 1
            if len(line) > MAX_LINE_BYTES:
                message = f"the line is longer than {MAX_LINE_BYTES >> 20} MiB; is this a text file?"
                raise UserError(f"{message} Break it into lines", path, number)
            if number == 1 and not wide:
                refuse_wide(line, path)
            if b"\0" in line:
                at = line.index(b"\0") + 1
                raise UserError(f"a NUL byte (byte {at} of the line): the file is binary, not text", path, number)
            yield number, line


def decode(data: bytes, encoding: str, path: Path, line: int) -> str:
    """Decode bytes that begin at `line` of a file.

    Raises:
        UserError: with the line and the byte that is wrong.
    """
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        start = data.rfind(b"\n", 0, error.start) + 1
        line += data.count(b"\n", 0, error.start)
        latin = "; if the file is latin-1, set reader.encoding: latin-1 (init: --encoding latin-1)"
        hint = latin if encoding == "utf-8" else ""
        wrong = f"byte {error.start - start + 1} of the line, 0x{data[error.start]:02x}"
        raise UserError(f"not {encoding.upper()} ({wrong}){hint}", path, line) from None


def half_character(text: str) -> str | None:
    """The first lone surrogate of a text, as `U+D800`: JSON can hold what UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"U+{ord(text[error.start]):04X}"
    return None


def _utf8_where_wide(encoding: str) -> str:
    """The codec of the bytes that `_raw_lines` yields."""
    return "utf-8" if encoding in WIDE else encoding


def _without_mark(data: bytes, encoding: str) -> bytes:
    return data.removeprefix(codecs.BOM_UTF8) if encoding == "utf-8" else data


def lines(
    path: Path, encoding: str, advance: Advance = no_advance, *, place: Place = START, stop: int = NO_STOP
) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file as (number from 1, text without its line end); arguments as of `_raw_lines`.

    Raises:
        UserError: see `_raw_lines` and `decode`.
    """
    raw = _raw_lines(path, encoding, advance, place=place, stop=stop)
    encoding = _utf8_where_wide(encoding)
    for number, data in raw:
        if number == 1:
            data = _without_mark(data, encoding)  # noqa: PLW2901
            if not data:
                return  # a byte order mark and nothing else
        yield number, decode(data.removesuffix(b"\n").removesuffix(b"\r"), encoding, path, number)


def whole_text(
    path: Path,
    encoding: str,
    advance: Advance = no_advance,
    *,
    instead: str = "set reader.document: paragraph or line",
) -> str:
    """Return the text of a file with "\\r\\n" turned into "\\n" and without a byte order mark.

    Args:
        path, encoding: the file, and the codec of its text.
        advance: called with the number of (compressed) bytes after each read.
        instead: what to do with a file that is too large.

    Raises:
        UserError: see `_raw_lines` and `decode`; or the file is larger than `MAX_DOCUMENT_BYTES`.
    """
    parts = []
    size = 0
    for number, data in _raw_lines(path, encoding, advance):
        size += len(data)
        if size > MAX_DOCUMENT_BYTES:
            message = f"the document is larger than {MAX_DOCUMENT_BYTES >> 20} MiB"
            raise UserError(f"{message}; {instead}", path, number)
        parts.append(data)
    encoding = _utf8_where_wide(encoding)
    data = _without_mark(b"".join(parts), encoding)
    return decode(data, encoding, path, 1).replace("\r\n", "\n")
