"""The members of a tar archive, read as a stream.

The standard library's reader holds every member's header, and reads a long name or a pax header of any claimed size
into memory. This one holds one header. Formats: ustar, GNU (long names), pax (path, size; global headers hold neither).
Cost: one pass; memory O(`MAX_MEMBER_HEADER_BYTES`).
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from lexmill.base.budgets import MAX_MEMBER_HEADER_BYTES, MAX_MEMBERS, MIB
from lexmill.base.errors import UserError
from lexmill.corpora.fetching.source_folder import ReadableBytes

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1 << 16
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_SKIPPED = (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK)
_LINKS = (tarfile.SYMTYPE, tarfile.LNKTYPE)


class Section(io.RawIOBase):
    """The next `size` bytes of a stream, as a stream; raises `EOFError` where there are fewer."""

    def __init__(self, stream: ReadableBytes, size: int) -> None:
        self._stream, self._left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._stream.read(min(len(buffer), self._left))
        if self._left and len(buffer) and not chunk:
            raise EOFError(f"the file ends {self._left} bytes too early")
        buffer[: len(chunk)] = chunk
        self._left -= len(chunk)
        return len(chunk)

    def skip(self) -> None:
        """Read to its end."""
        while self._left:
            self.read(_CHUNK)


class TarMember(NamedTuple):
    """A member that is a file or a link; `contents` can be read until the next member is asked for."""

    name: str
    kind: Literal["file", "link", "sparse"]
    contents: io.RawIOBase


def tar_members(stream: ReadableBytes) -> Iterator[TarMember]:
    """Yield the files and links of an archive.

    Raises:
        UserError: more than `MAX_MEMBERS` headers, or one of more than `MAX_MEMBER_HEADER_BYTES`.
        tarfile.TarError, EOFError: the archive is damaged.
    """
    headers = 0
    named: dict[bytes, bytes] = {}
    while block := _block(stream, first=not headers):
        headers += 1
        if headers > MAX_MEMBERS:
            raise UserError(f"holds more than {MAX_MEMBERS:,} members; pack them into fewer, larger files")
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if info.type in (*_PAX, *_SKIPPED, tarfile.GNUTYPE_LONGNAME):
            data = _header(stream, info.size)
            if info.type in _PAX:
                named |= _pax_records(data)
            elif info.type == tarfile.GNUTYPE_LONGNAME:
                named[b"path"] = data.partition(b"\0")[0]
            continue
        name = named[b"path"].decode("utf-8", "surrogateescape") if b"path" in named else info.name
        size = _number(named[b"size"]) if b"size" in named else info.size
        sparse = info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith(b"GNU.sparse.") for key in named)
        named = {}
        if info.type in _LINKS:
            yield TarMember(name, "link", Section(stream, 0))
            continue
        holds_data = info.isreg() or info.type not in tarfile.SUPPORTED_TYPES
        contents = Section(stream, _checked(size) if holds_data else 0)
        if info.isreg():
            yield TarMember(name, "sparse" if sparse else "file", contents)
        contents.skip()
        Section(stream, -size % _BLOCK if holds_data else 0).skip()


def _block(stream: ReadableBytes, first: bool) -> bytes:
    """Return the next header block; b"" at the end, which one block of zeros marks."""
    block = _up_to(stream, _BLOCK)
    if first and not block:
        raise tarfile.ReadError("it is empty")
    if block and len(block) < _BLOCK:
        raise tarfile.ReadError("it ends within a header")
    return block if block.strip(b"\0") else b""


def _header(stream: ReadableBytes, size: int) -> bytes:
    """Return the data of a header that describes the next member."""
    if _checked(size) > MAX_MEMBER_HEADER_BYTES:
        raise UserError(
            f"a member's name or header claims {size:,} bytes, more than {MAX_MEMBER_HEADER_BYTES // MIB} MiB;"
            " it looks like an archive bomb and was not used"
        )
    padded = size + -size % _BLOCK
    data = _up_to(stream, padded)
    if len(data) < padded:
        raise EOFError("it ends within a header")
    return data[:size]


def _up_to(stream: ReadableBytes, size: int) -> bytes:
    parts = []
    while size and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """Parse `<length> <key>=<value>\\n` ... (POSIX.1-2001, pax)."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 20)
        size = _number(data[at:space]) if space > at else 0
        record = data[space + 1 : at + size]
        key, sign, value = record[:-1].partition(b"=")
        if size <= space - at or not sign or not record.endswith(b"\n"):
            raise tarfile.HeaderError("a pax header is damaged")
        found[key] = value
        at += size
    return found


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 20:
        raise tarfile.HeaderError(f"{digits[:20]!r} is not a size")
    return int(digits)


def _checked(size: int) -> int:
    if size < 0:
        raise tarfile.HeaderError(f"a size is {size}")
    return size
