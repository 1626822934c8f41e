"""Outputs whose bytes are not those that dvc.lock names, though DVC takes them for unchanged.

`dvc pull` names a file after the object it asked for and does not read it, so a copy damaged at the remote or on the
way goes unnoticed, and so does a damaged object of the cache. Here each output is hashed once, when DVC calls it
unchanged and it is new here: by size, time of change and inode. Cost: afterwards one `stat` a file; the first time one
read of it, a second for each GB, several files at once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from lexmill.base import progress, storage, workspace
from lexmill.base.errors import UserError, UserErrors

_FILE = "verified.json"
_WORKERS = 4
_MOST_SHOWN = 10


class _File(NamedTuple):
    path: Path
    md5: str
    object: str  # its place in DVC's cache


class Verified:
    """The files that were found sound, remembered in the workspace's folder `.lexmill`."""

    def __init__(self, root: Path) -> None:
        self._root, self._kept = root, root / workspace.HOME / _FILE
        try:
            found = storage.read_json(self._kept)
            self._known: dict[str, list[Any]] = found if isinstance(found, dict) else {}
        except (OSError, ValueError, RecursionError):
            self._known = {}
        self._seen: dict[str, list[Any]] = {}
        self._new: list[tuple[_File, str, list[Any]]] = []

    def add(self, node: Any, status: Mapping[str, list[Any]]) -> None:
        """Take the outputs of a stage of DVC that its status calls unchanged."""
        changed = any("changed outs" in one for entries in status.values() for one in entries if isinstance(one, dict))
        for file in () if changed else _files(node):
            try:
                found = file.path.stat()
            except OSError:
                continue  # DVC reports what is missing
            name = os.path.relpath(file.path, self._root)
            state = [found.st_size, found.st_mtime_ns, found.st_ino, file.md5]
            if self._known.get(name) == state:
                self._seen[name] = state
            else:
                self._new.append((file, name, state))

    def check(self) -> None:
        """Hash the files that are new here; raise `UserErrors` for those with other bytes."""
        if not self._new:
            return
        total = sum(state[0] for _, _, state in self._new)
        errors: list[str | UserError] = []
        with progress.bar("verify outputs", total) as bar, ThreadPoolExecutor(_WORKERS) as pool:
            for (file, name, state), md5 in zip(
                self._new, pool.map(lambda one: _md5(one[0].path), self._new), strict=True
            ):
                bar.update(state[0])
                if md5 == file.md5:
                    self._seen[name] = state
                else:
                    errors.append(_error(file, name))
        storage.write_json(self._kept, self._known | self._seen)
        if errors:
            left = len(errors) - _MOST_SHOWN
            raise UserErrors([*errors[:_MOST_SHOWN], *([f"and {left:,} more"] if left > 0 else [])])


def _files(node: Any) -> Iterator[_File]:
    """Yield the files of a stage's outputs that DVC's cache stores, with the hash in dvc.lock."""
    for out in node.outs:
        found = out.hash_info
        if not (out.use_cache and found and found.name == "md5" and out.fs.protocol == "local"):
            continue
        if not found.isdir:
            yield _File(Path(out.fs_path), found.value, out.cache.oid_to_path(found.value))
            continue
        try:
            tree = out.get_obj()
        except Exception:  # its list of files is not in the cache or damaged: DVC reports it
            continue
        for key, _, inner in tree or ():
            yield _File(Path(out.fs_path, *key), inner.value, out.cache.oid_to_path(inner.value))


def _md5(path: Path) -> str:
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _error(file: _File, name: str) -> UserError:
    return UserError(
        f"its bytes are not those that dvc.lock names (md5 {file.md5}): it was pulled or restored from a damaged copy."
        f" Remove it and {file.object}, then pull it from a sound remote or run again; `dvc remote modify NAME verify"
        " true` makes DVC check what it pulls",
        name,
    )
