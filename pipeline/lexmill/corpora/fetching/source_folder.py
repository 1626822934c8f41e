"""The folder that a fetch fills: each file's name is checked, its bytes are counted and hashed as they are written."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any, Protocol

from lexmill.base.budgets import MAX_EXPANSION, MAX_NAME_BYTES, MAX_PATH_BYTES, ROOM
from lexmill.base.cutting import beginning
from lexmill.base.errors import UserError

MANIFEST = "manifest.json"
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_CHUNK = 1 << 20


class ReadableBytes(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class Budget:
    """A bound on unpacked bytes, so that a small archive cannot fill the disk: `ROOM` + `MAX_EXPANSION` * its size.

    Args:
        packed: the archive's size.
    """

    def __init__(self, packed: int) -> None:
        self.limit = self.left = ROOM + MAX_EXPANSION * packed

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise UserError(
                f"unpacks to more than {self.limit >> 20} MiB, over {MAX_EXPANSION} times its size; it looks like an"
                " archive bomb and was not used"
            )


class Metered:
    """A stream of unpacked bytes; each one read is taken from a budget, also those that are skipped."""

    def __init__(self, stream: ReadableBytes, budget: Budget) -> None:
        self._stream, self._budget = stream, budget

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        self._budget.spend(len(data))
        return data


def copy_bounded(stream: ReadableBytes, out: Any, budget: Budget | None = None) -> tuple[int, str]:
    """Copy a stream in chunks; return (bytes, sha256)."""
    digest, size = hashlib.sha256(), 0
    while chunk := stream.read(_CHUNK):
        if budget is not None:
            budget.spend(len(chunk))
        out.write(chunk)
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def safe_name(name: str) -> str:
    """Return a file name of an archive or a URL as a relative path with '/'.

    Raises:
        UserError: for a name that would leave the folder: absolute, with '..', a drive or a backslash; for one that is
            not UTF-8, or too long.
    """
    try:
        sizes = [len(part.encode("utf-8")) for part in name.split("/")]
    except UnicodeEncodeError:
        shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        raise UserError(f"holds the name {shown!r}, which is not UTF-8; it was not used") from None
    if max(sizes) > MAX_NAME_BYTES or sum(sizes) + len(sizes) > MAX_PATH_BYTES:
        raise UserError(f"holds the name {beginning(name, 40)!r}..., which is too long for a file; it was not used")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    windows = "\\" in name or (len(name) > 1 and name[1] == ":" and name[0].isalpha())
    if not parts or ".." in parts or name.startswith("/") or windows or any(ord(c) < 32 for c in name):
        raise UserError(f"holds the unsafe path {name!r}, which leads out of its folder; it was not used")
    return "/".join(parts)


class SourceFolder:
    """Collects files under `folder` and their manifest entries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries: dict[str, dict[str, Any]] = {}

    def add(self, name: str, stream: ReadableBytes, budget: Budget | None = None) -> str:
        """Write one file at a relative path; return its sha256."""
        name = safe_name(name)
        if name in self._entries:
            raise UserError(f"holds {name!r} twice; choose one of them")
        if name == MANIFEST:
            raise UserError(f"holds a file named {MANIFEST}, a reserved name; choose members without it")
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as out:
                size, sha256 = copy_bounded(stream, out, budget)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise UserError(f"holds both a file and a folder at {name!r}, or two names of other case") from None
        except OSError as error:
            error.filename = error.filename or str(path)  # a failed write does not name its file
            raise
        self._entries[name] = {"path": name, "bytes": size, "sha256": sha256}
        return sha256

    def take(self, path: Path, name: str, entry: dict[str, Any]) -> None:
        """Move a file that another `SourceFolder` collected to a relative path here."""
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.rename(path, place)
        self._entries[name] = {**entry, "path": name}

    def remove(self) -> None:
        """Remove the folder and what is left in it."""
        shutil.rmtree(self.folder)
        self._entries.clear()

    @property
    def files(self) -> list[dict[str, Any]]:
        """`{"path", "bytes", "sha256"}` of every file, sorted by path."""
        return [self._entries[name] for name in sorted(self._entries)]
