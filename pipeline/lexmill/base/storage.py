"""Atomic writes: a kill at any moment leaves the old state or the new one.

Files and folders are written beside their place, flushed to disk and renamed. JSON is canonical (sorted keys, one
newline at the end), so equal contents are equal bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_CHUNK = 1 << 20


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: str | Path) -> str:
    """Return the sha256 of a file's bytes, read in chunks (memory O(1))."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def sha256_folder(folder: str | Path) -> str:
    """Hash a folder's contents: relative paths and file hashes, in sorted order."""
    folder = Path(folder)
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{sha256_file(path)}\n".encode())
    return digest.hexdigest()


def canonical_json(value: Any) -> str:
    """Return the canonical JSON of a value: sorted keys, UTF-8 unescaped, NaN refused."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def fingerprint(value: Any) -> str:
    """Return the sha256 of a value's canonical JSON, the identity of a configuration."""
    return sha256_bytes(canonical_json(value).encode())


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries (the names in it) to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file atomically; remove what killed writers left beside it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale, writer in _beside(path):
        if not _lives(writer):
            stale.unlink(missing_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    flush_folder(path.parent)


def write_text(path: str | Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | Path, value: Any) -> None:
    write_text(path, canonical_json(value))


def read_json(path: str | Path) -> Any:
    return from_json(Path(path).read_text(encoding="utf-8"))


def from_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raise `ValueError` for any that is none, also one that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextmanager
def new_folder(target: str | Path) -> Iterator[Path]:
    """Yield a new folder that replaces `target` when the block succeeds; on an error nothing is left.

    What a killed run left beside it is removed first.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_half_written(target)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    old = target.with_name(f".{target.name}.{os.getpid()}.old.tmp")
    beside.mkdir()
    try:
        yield beside
        # A disk flushes 32 files together about as fast as one.
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(_flush_file, (path for path in beside.rglob("*") if path.is_file())))
        if target.exists():
            os.rename(target, old)
        os.rename(beside, target)
        flush_folder(target.parent)
    finally:
        for folder in (beside, old):
            if folder.exists():
                shutil.rmtree(folder)


@contextmanager
def scratch_folder(target: str | Path) -> Iterator[Path]:
    """Yield a folder beside `target`, removed after the block; `new_folder` removes what a killed run left."""
    target = Path(target)
    scratch = target.with_name(f".{target.name}.{os.getpid()}.scratch.tmp")
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


def remove_half_written(target: Path) -> None:
    """Remove what killed writers left beside a target that nobody writes."""
    for stale, _ in _beside(target):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


def _beside(target: Path) -> Iterator[tuple[Path, int]]:
    """Yield what writers of `target` left beside it, each with the writer's process id."""
    name = re.compile(rf"\.{re.escape(target.name)}\.(\d+)(\.[a-z]+)?\.tmp")
    for path in list(target.parent.iterdir()):
        if found := name.fullmatch(path.name):
            yield path, int(found[1])


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def try_lock(file: int | IO[Any], how: int = fcntl.LOCK_EX) -> bool:
    """Take flock's lock of an open file without waiting; return False where another process holds it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _flush_file(path: Path) -> None:
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
