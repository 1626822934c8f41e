"""Extract chosen members of archives, read as streams: nothing of a package is installed, built or run.

Formats are recognised by their first bytes: zip (and wheels), tar (plain, gzip, bzip2, xz, zstd) and Debian packages
(an `ar` archive with data.tar.*). Globs choose members as in `glob.glob(recursive=True)`: `*` stays within a folder and
skips hidden files, `**` crosses folders. A glob without a '/' matches in every folder; a leading '/' anchors it at the
top. `a.tar.gz!b.txt` is a member of an inner archive, written as `a.tar.gz/.../b.txt`.

Refused: names that lead out of the folder, wanted members that are links, and more bytes than a `Budget` allows.
Cost: one pass over the archive; memory O(members) for zip, O(1) for tar.
"""

from __future__ import annotations

import bz2
import difflib
import fnmatch
import gzip
import io
import lzma
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

from lexmill.base.errors import UserError
from lexmill.corpora.fetching.source_folder import Budget, SourceFolder, copy_bounded, safe_name

_NAMES_KEPT = 20_000
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


@dataclass(frozen=True)
class _Member:
    name: str
    open: Callable[[], Any]
    is_link: bool


# ---------------------------------------------------------------- globs


@cache
def parse_glob(glob: str) -> tuple[str, ...]:
    """A glob as its path segments; one without '/' matches at any depth."""
    if "/" not in glob:
        return ("**", glob)
    return tuple(part for part in glob.split("/") if part not in ("", "."))


def matches(name: str, glob: str) -> bool:
    """Whether a relative path matches a glob (the rules are in the module's docstring)."""
    return _match(tuple(name.split("/")), parse_glob(glob))


def _match(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        if len(wanted) == 1:
            return bool(parts) and not any(part.startswith(".") for part in parts)
        if _match(parts, wanted[1:]):
            return True
        return bool(parts) and not parts[0].startswith(".") and _match(parts[1:], wanted)
    if not parts:
        return False
    hidden = parts[0].startswith(".") and not wanted[0].startswith(".")
    return not hidden and fnmatch.fnmatchcase(parts[0], wanted[0]) and _match(parts[1:], wanted[1:])


# ---------------------------------------------------------------- formats


class _Section(io.RawIOBase):
    """The next `size` bytes of a stream, as a stream."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream, self._left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._stream.read(min(len(buffer), self._left))
        buffer[: len(chunk)] = chunk
        self._left -= len(chunk)
        return len(chunk)


def _members(stream: IO[bytes]) -> Iterator[_Member]:
    magic = stream.read(8)
    stream.seek(0)
    if magic.startswith(b"PK"):
        yield from _zip_members(stream)
    elif magic == b"!<arch>\n":
        data: Any = io.BufferedReader(_deb_data(stream))
        yield from _tar_members(data, data.peek(8)[:8])
    else:
        yield from _tar_members(stream, magic)


def _zip_members(stream: IO[bytes]) -> Iterator[_Member]:
    with zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            if info.flag_bits & 1:
                raise UserError("is encrypted; unpack it by hand and use source kind `file`")
            yield _Member(info.filename, partial(archive.open, info), stat.S_ISLNK(info.external_attr >> 16))


def _tar_members(stream: IO[bytes], magic: bytes) -> Iterator[_Member]:
    with tarfile.open(fileobj=_decompressed(stream, magic), mode="r|", encoding="utf-8") as archive:
        for info in archive:
            if info.isfile():
                yield _Member(info.name, partial(archive.extractfile, info), is_link=False)
            elif info.issym() or info.islnk():
                yield _Member(info.name, io.BytesIO, is_link=True)


def _decompressed(stream: IO[bytes], magic: bytes) -> Any:
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(stream)
    if magic.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile(stream)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
    return stream


def _deb_data(stream: IO[bytes]) -> _Section:
    """The data.tar.* of a Debian package (deb(5): an ar archive of debian-binary, control.tar.*, data.tar.*)."""
    stream.seek(8)
    while len(header := stream.read(60)) == 60:
        name = header[:16].decode("ascii", "replace").strip().rstrip("/")
        if header[58:] != b"`\n" or not header[48:58].strip().isdigit():
            break
        size = int(header[48:58])
        if name.startswith("data.tar"):
            return _Section(stream, size)
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
    try:
        with open(archive, "rb") as stream:
            _Extraction(target, prefix, Budget(archive.stat().st_size)).run(stream, "", globs, strip_top)
    except _DAMAGED as error:
        raise UserError(f"is damaged or not a readable archive (zip, tar, deb): {error}") from None
    except NotImplementedError as error:
        raise UserError(f"is packed in a way that cannot be read: {error}") from None
    except Exception as error:
        if type(error).__name__ == "ZstdError":  # by name, so that zstandard is imported only where it is used
            raise UserError(f"is damaged: {error}") from None
        raise


class _Extraction:
    """One archive and its inner archives, with one budget."""

    def __init__(self, target: SourceFolder, prefix: str, budget: Budget) -> None:
        self.target, self.prefix, self.budget = target, prefix, budget

    def run(self, stream: IO[bytes], prefix: str, globs: Sequence[str], strip_top: bool) -> None:
        wanted = _Wanted(globs)
        for member in _members(stream):
            name = safe_name(member.name)
            if strip_top:
                name = name.partition("/")[2]
                if not name:
                    continue
            plain, inside = wanted.take(name)
            if not plain and not inside:
                continue
            if member.is_link:
                message = f"the member {prefix + name!r} is a link, which is not followed; choose the file it points to"
                raise UserError(message)
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
