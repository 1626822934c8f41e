"""The fetched files of a corpus, in their natural order, and the names of their documents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from lexmill.base.encodings import codec_name
from lexmill.base.errors import UserError
from lexmill.base.outside import parsing, read_json_object
from lexmill.corpora.fetching.globs import fits
from lexmill.corpora.preparing.text_files import COMPRESSED_SUFFIXES, NO_STOP, START, Place
from lexmill.params.readers import EncodedReader

_MOST_LISTED = 10  # paths in an error


def natural_key(text: str) -> tuple[tuple[int, str] | tuple[int, int, str], ...]:
    """A sort key under which `part2` comes before `part10`; ties keep the order of the plain text."""
    parts = re.split(r"([0-9]+)", text)
    return tuple((0, int(part), part) if i % 2 else (1, part) for i, part in enumerate(parts))


def uncompressed(path: str) -> str:
    """The path without a final `.gz` or `.zst`."""
    for suffix in COMPRESSED_SUFFIXES:
        path = path.removesuffix(suffix)
    return path


def names(paths: Iterable[str]) -> dict[str, str]:
    """A unique name for each file: its stem; where files share it, the path without suffix, else the path.

    A stem can equal another file's path (`b.txt.md` next to `b.csv` and `b.txt`): files with such names get their path.
    """
    found: dict[str, str] = {}
    left = list(paths)
    for name in (_stem, _stem_with_folder, uncompressed, str):
        named = {path: name(path) for path in left}
        shared = {name for name, count in Counter(named.values()).items() if count > 1}
        found.update((path, name) for path, name in named.items() if name not in shared)
        left = [path for path, name in named.items() if name in shared]
    while taken := {name for name, count in Counter(found.values()).items() if count > 1}:
        found = {path: path if name in taken else name for path, name in found.items()}
    return found


def _stem(path: str) -> str:
    return PurePosixPath(uncompressed(path)).stem


def _stem_with_folder(path: str) -> str:
    return str(PurePosixPath(uncompressed(path)).with_suffix(""))


class LineNames:
    """Unique names for records by their line: `12`, and `12.2` for the second one that begins there."""

    def __init__(self) -> None:
        self._line, self._count = 0, 0

    def next(self, line: int) -> str:
        """Return the name of the next record, which begins in this line or a later one than the last."""
        self._count = self._count + 1 if line == self._line else 1
        self._line = line
        return f"{line}.{self._count}" if self._count > 1 else str(line)


def listed(paths: Sequence[str]) -> str:
    """Return the first few paths for an error."""
    return ", ".join(paths[:_MOST_LISTED]) + (" ..." if len(paths) > _MOST_LISTED else "")


Unit = tuple[str, tuple[str, ...]]
"""Files that are read together: the name of their records, and their paths in the source folder."""


class Span(NamedTuple):
    """A range of a unit's lines: the records that begin in it are read, the last one to its end.

    Attributes:
        places: in each file of the unit, a line at or before line `first`; in the first file that line itself.
        first, stop: the number of the first line, and of the line after the last.
        inside: whether an earlier record continues in the first line.
    """

    places: tuple[Place, ...]
    first: int = 1
    stop: int = NO_STOP
    inside: bool = False


WHOLE = Span((START, START))
"""All lines of the one file or the two files of a unit."""


def encoding_of(reader: EncodedReader, path: str) -> str:
    """Return the codec of a file's text: by the glob of `encodings` that it matches, else `encoding`.

    Raises:
        UserError: two globs give it two encodings.
    """
    named = {pattern: codec_name(name) for pattern, name in reader.encodings.items() if matches(path, pattern)}
    if len(set(named.values())) > 1:
        both = " and ".join(f"'{pattern}' ({codec})" for pattern, codec in list(named.items())[:3])
        raise UserError(f"reader.encodings: {path} matches {both}; let only one match, or give both one encoding")
    return next(iter(named.values()), codec_name(reader.encoding))


class SourceFiles:
    """A source folder, read through its manifest.

    Attributes:
        folder, paths: the folder, and the files' paths in it, naturally sorted.
        sizes, bytes: the size of each file by path, and their total.
    """

    def __init__(self, folder: str | Path) -> None:
        """Raise `UserError` when the folder was not fetched or holds no file."""
        self.folder = Path(folder)
        manifest = self.folder / "manifest.json"
        if not manifest.is_file():
            raise UserError("no manifest.json here; fetch the corpus first", self.folder)
        with parsing("not what fetch writes; fetch the corpus again", manifest):
            self.sizes = {str(file["path"]): int(file["bytes"]) for file in read_json_object(manifest)["files"]}
        self.paths = sorted(self.sizes, key=natural_key)
        self.bytes = sum(self.sizes.values())
        if not self.paths:
            raise UserError("the corpus has no files; check its `source` in params.yaml", manifest)

    def file(self, path: str) -> Path:
        return self.folder / path

    def matching(self, patterns: Iterable[str]) -> list[str]:
        """The paths that match the globs, pattern after pattern, each once; naturally sorted within a pattern.

        See `matches`.
        """
        found: dict[str, None] = {}
        for pattern in patterns:
            for path in self.paths:
                if matches(path, pattern):
                    found[path] = None
        return list(found)


def matches(path: str, pattern: str) -> bool:
    """Whether a glob matches a path; one without "/" matches the file's name, and may omit `.gz` and `.zst`."""
    names = (path, uncompressed(path))
    if "/" not in pattern:
        names = (PurePosixPath(names[0]).name, PurePosixPath(names[1]).name)
    return any(fits(name, pattern) or name.endswith(f"/{pattern}") or fits(name, f"*/{pattern}") for name in names)
