"""Extract chosen members of archives, read as streams: nothing of a package is installed, built or run.

Formats are recognised by their first bytes: zip (and wheels), tar (plain, gzip, bzip2, xz, zstd) and Debian packages
(an `ar` archive with data.tar.*). Globs choose members as in `glob.glob(recursive=True)`: `*` stays within a folder and
skips hidden files, `**` crosses folders. A glob without a '/' matches in every folder; a leading '/' anchors it at the
top. `a.tar.gz!b.txt` is a member of an inner archive, written as `a.tar.gz/.../b.txt`.

Refused: names that lead out of the folder, wanted members that are links or sparse, and more bytes, members or memory
than `base.budgets` allows. Cost: one pass over the archive; memory O(members) for zip, O(1) for tar.
"""

from __future__ import annotations

import bz2
import difflib
import gzip
import io
import lzma
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from lexmill.base.budgets import MAX_DIRECTORY_BYTES, MAX_MEMBERS, MAX_XZ_MEMORY, MIB
from lexmill.base.errors import UserError
from lexmill.base.outside import parsing
from lexmill.corpora.fetching.globs import matches
from lexmill.corpora.fetching.source_folder import (
    Budget,
    Metered,
    ReadableBytes,
    SourceFolder,
    copy_bounded,
    safe_name,
)
from lexmill.corpora.fetching.tar_stream import Section, tar_members

_NAMES_KEPT = 20_000
_CHUNK = 1 << 16
_LZMA_CHUNK = 4096  # `zipfile` unpacks all of a chunk of LZMA at once, to 7,000 times its size
_ZIP_SIZES = struct.Struct("<2H")  # of the name and the extra field before a member's data
_ZIP_END, _ZIP64_END = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q")


@dataclass(frozen=True)
class _Member:
    """`unusable`: why its contents cannot be taken; empty if they can."""

    name: str
    open: Callable[[], Any]
    unusable: str = ""


def _reading() -> AbstractContextManager[None]:
    return parsing("is damaged or not a readable archive (zip, tar, deb)")


class _Contents:
    """A member's stream, read in chunks that bound what unpacking one of them takes."""

    def __init__(self, stream: Any, most: int) -> None:
        self._stream, self._most = stream, most

    def read(self, size: int = -1, /) -> bytes:
        with _reading():
            return bytes(self._stream.read(self._most if size < 0 else min(size, self._most)))

    def __enter__(self) -> _Contents:
        return self

    def __exit__(self, *_error: Any) -> None:
        self._stream.close()


# ---------------------------------------------------------------- formats


def _members(stream: IO[bytes], packed: int) -> Iterator[_Member]:
    magic = stream.read(8)
    stream.seek(0)
    if magic.startswith(b"PK"):
        yield from _zip_members(stream)
    elif magic == b"!<arch>\n":
        data: Any = io.BufferedReader(_deb_data(stream))
        yield from _tar_members(data, data.peek(8)[:8], packed)
    else:
        yield from _tar_members(stream, magic, packed)


def _zip_members(stream: IO[bytes]) -> Iterator[_Member]:
    _check_directory(stream)
    with zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            if info.flag_bits & 1:
                raise UserError("is encrypted; unpack it by hand and use source kind `file`")
            link = stat.S_ISLNK(info.external_attr >> 16)
            yield _Member(info.filename, partial(_open, archive, stream, info), _LINK if link else "")


def _open(archive: zipfile.ZipFile, stream: IO[bytes], info: zipfile.ZipInfo) -> _Contents:
    with _reading():
        member: Any = archive.open(info)
        if info.compress_type != zipfile.ZIP_BZIP2:
            return _Contents(member, _LZMA_CHUNK if info.compress_type == zipfile.ZIP_LZMA else _CHUNK)
        # `zipfile` would unpack all of a chunk at once, and bzip2 makes 45 MB of zeros from 40 bytes.
        stream.seek(info.header_offset)
        name_size, extra_size = _ZIP_SIZES.unpack_from(stream.read(30), 26)
        stream.seek(name_size + extra_size, io.SEEK_CUR)
        return _Contents(_Unpacked(Section(stream, info.compress_size), bz2.BZ2Decompressor, info.CRC), _CHUNK)


def _check_directory(stream: IO[bytes]) -> None:
    """Raise `UserError` for a zip whose list of members is over budget: `zipfile` makes an object of each at once."""
    length = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, length - (1 << 16) - _ZIP_END.size))
    tail = stream.read()
    at = tail.rfind(b"PK\5\6")
    if 0 <= at <= len(tail) - _ZIP_END.size:
        end = length - len(tail) + at
        size = _ZIP_END.unpack_from(tail, at)[5]
        if size == 0xFFFFFFFF and end >= 20 + _ZIP64_END.size:
            stream.seek(end - 20 - _ZIP64_END.size)
            size = _ZIP64_END.unpack(stream.read(_ZIP64_END.size))[8]
            end -= 20 + _ZIP64_END.size
        if size > MAX_DIRECTORY_BYTES:
            raise UserError(f"its list of members has {size:,} bytes, more than {MAX_DIRECTORY_BYTES // MIB} MiB")
        stream.seek(max(0, end - size))
        if stream.read(size).count(b"PK\1\2") > MAX_MEMBERS:
            raise UserError(f"holds more than {MAX_MEMBERS:,} members; pack them into fewer, larger files")
    stream.seek(0)


_LINK = "is a link, which is not followed; choose the file it points to"
_UNUSABLE = {"file": "", "link": _LINK, "sparse": "is a sparse file, which is not read; pack it without --sparse"}


def _tar_members(stream: IO[bytes], magic: bytes, packed: int) -> Iterator[_Member]:
    for member in tar_members(Metered(_decompressed(stream, magic), Budget(packed))):
        yield _Member(member.name, partial(_Contents, member.contents, MIB), _UNUSABLE[member.kind])


class _Unpacked(io.RawIOBase):
    """The bytes of bzip2 or xz streams, unpacked in bounded steps.

    Args:
        stream: the packed bytes.
        new: makes a decompressor.
        crc: the CRC-32 of all unpacked bytes; None: not checked.
    """

    def __init__(
        self,
        stream: ReadableBytes,
        new: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor],
        crc: int | None = None,
    ) -> None:
        self._stream, self._new, self._decoder = stream, new, new()
        self._crc, self._found = crc, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            if self._decoder.eof:
                left = self._decoder.unused_data.lstrip(b"\0") or self._stream.read(_CHUNK).lstrip(b"\0")
                if not left:
                    if self._crc not in (None, self._found):
                        raise zipfile.BadZipFile("wrong checksum")
                    return 0
                self._decoder = self._new()  # another stream follows
            elif self._decoder.needs_input:
                left = self._stream.read(_CHUNK)
                if not left:
                    raise EOFError("it ends within packed data")
            else:
                left = b""
            data = self._decoder.decompress(left, len(buffer))
        self._found = zlib.crc32(data, self._found)
        buffer[: len(data)] = data
        return len(data)


def _decompressed(stream: IO[bytes], magic: bytes) -> ReadableBytes:
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream)
    if magic.startswith(b"BZh"):
        return io.BufferedReader(_Unpacked(stream, bz2.BZ2Decompressor), _CHUNK)
    if magic.startswith(b"\xfd7zXZ\0"):
        return io.BufferedReader(_Unpacked(stream, partial(lzma.LZMADecompressor, memlimit=MAX_XZ_MEMORY)), _CHUNK)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        # A frame that needs a window of more than 128 MiB is refused by the library.
        reader: ReadableBytes = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        return reader
    return stream


def _deb_data(stream: IO[bytes]) -> Section:
    """The data.tar.* of a Debian package (deb(5): an ar archive of debian-binary, control.tar.*, data.tar.*)."""
    stream.seek(8)
    while len(header := stream.read(60)) == 60:
        name = header[:16].decode("ascii", "replace").strip().rstrip("/")
        if header[58:] != b"`\n" or not header[48:58].strip().isdigit():
            break
        size = int(header[48:58])
        if name.startswith("data.tar"):
            return Section(stream, size)
        stream.seek(size + size % 2, io.SEEK_CUR)
    raise UserError("is not a Debian package: it holds no data.tar")


# ---------------------------------------------------------------- extraction


class _Wanted:
    """The globs of one archive level, and which of them have matched."""

    def __init__(self, globs: Sequence[str]) -> None:
        self.plain = [glob for glob in globs if "!" not in glob]
        self.inner: dict[str, list[str]] = {}
        for glob in globs:
            if "!" in glob:
                outer, inside = glob.split("!", 1)
                self.inner.setdefault(outer, []).append(inside)
        self.found: set[str] = set()
        self.names: list[str] = []

    def take(self, name: str) -> tuple[bool, list[str]]:
        """Whether a member itself is wanted, and the globs of what is wanted inside it."""
        if len(self.names) < _NAMES_KEPT:
            self.names.append(name)
        plain = [glob for glob in self.plain if matches(name, glob)]
        outer = [glob for glob in self.inner if matches(name, glob)]
        self.found.update(plain, outer)
        return bool(plain), [inside for glob in outer for inside in self.inner[glob]]

    def missing(self) -> list[str]:
        return [glob for glob in [*self.plain, *self.inner] if glob not in self.found]


def extract(
    archive: Path, globs: Sequence[str], target: SourceFolder, *, prefix: str = "", strip_top: bool = False
) -> None:
    """Write the matching members of an archive to a folder.

    Args:
        archive: the archive's file.
        globs: which members; each must match at least one.
        target: the folder that collects them.
        prefix: put before each name, with its '/'.
        strip_top: drop the archive's single top folder (`name-version/` of an sdist, `package/` of npm) from names.

    Raises:
        UserError: a glob without a match, a damaged or unsafe archive, a link, too many bytes.
    """
    with open(archive, "rb") as stream:
        _Extraction(target, prefix, archive.stat().st_size).run(stream, "", globs, strip_top)


class _Extraction:
    """One archive and its inner archives, with one budget."""

    def __init__(self, target: SourceFolder, prefix: str, packed: int) -> None:
        self.target, self.prefix, self.packed, self.budget = target, prefix, packed, Budget(packed)

    def run(self, stream: IO[bytes], prefix: str, globs: Sequence[str], strip_top: bool) -> None:
        wanted = _Wanted(globs)
        members = _members(stream, self.packed)
        while True:
            with _reading():
                member = next(members, None)
            if member is None:
                break
            name = safe_name(member.name)
            if strip_top:
                name = name.partition("/")[2]
                if not name:
                    continue
            plain, inside = wanted.take(name)
            if not plain and not inside:
                continue
            if member.unusable:
                raise UserError(f"the member {prefix + name!r} {member.unusable}")
            if inside:
                self._inner(member, prefix + name, plain, inside)
            else:
                with member.open() as contents:
                    self.target.add(self.prefix + prefix + name, contents, self.budget)
        if missing := wanted.missing():
            raise UserError(_missing_text(prefix, missing, wanted.names))

    def _inner(self, member: _Member, name: str, plain: bool, inside: list[str]) -> None:
        with tempfile.TemporaryFile(dir=self.target.folder) as spool:
            with member.open() as stream:
                copy_bounded(stream, spool, self.budget)
            if plain:
                spool.seek(0)
                self.target.add(self.prefix + name, spool, self.budget)
                name += "!"  # of the folder, since the archive itself has the plain name
            spool.seek(0)
            self.run(spool, f"{name}/", inside, strip_top=False)


def _missing_text(prefix: str, missing: list[str], names: list[str]) -> str:
    where = f"inside {prefix.rstrip('/')} " if prefix else ""
    close = difflib.get_close_matches(missing[0], names, n=3, cutoff=0.5) or sorted(names)[:3]
    hint = f"nearest: {', '.join(close)}" if close else "it is empty"
    what = "member matches" if len(missing) == 1 else "members match"
    return f"{where}no {what} {', '.join(map(repr, missing))} ({len(names)} files; {hint}); correct `members`"
