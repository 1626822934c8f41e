"""The user's own files, copied as they are."""

from __future__ import annotations

import difflib
import glob
import os
from pathlib import Path, PurePosixPath
from typing import Any

from lexmill.base import progress
from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_file
from lexmill.corpora.fetching.downloads import check_hash_text, mismatch
from lexmill.corpora.fetching.globs import real_files
from lexmill.corpora.fetching.pins import files_pin
from lexmill.corpora.fetching.source_folder import SourceFolder
from lexmill.params.corpora import FileSource


def fetch_files(source: FileSource, workspace: Path, target: SourceFolder) -> None:
    """Copy files into the folder.

    A path keeps its last part as name, a match of a glob its path below the glob's fixed folder; with `keep_folder`
    the name of that folder comes first. If two names clash, all files keep their path below their common folder. Each
    real file is copied once, under its shortest path: a link to a folder above would make endlessly many.

    Raises:
        UserError: a path or glob that matches nothing, a folder, an unreadable file, another sha256.
    """
    found = locate(source, workspace)
    hashes = [check_hash_text(sha256) for sha256 in source.sha256]
    if hashes and len(hashes) != len(found):
        names = ", ".join(found)
        raise UserError(f"sha256: {len(hashes)} hashes for {len(found)} files; give one a file, in this order: {names}")
    total = sum(path.stat().st_size for path in found.values())
    with progress.bar("copy", total) as bar:
        for i, (name, path) in enumerate(found.items()):
            with open(path, "rb") as stream:
                actual = target.add(name, stream)
            if hashes and actual != hashes[i]:
                raise mismatch(hashes[i], actual, str(path))
            bar.update(path.stat().st_size)


def locate(source: FileSource, workspace: Path) -> dict[str, Path]:
    """The files by their new name, sorted by it."""
    if not source.paths:
        raise UserError("paths: empty; give at least one path or glob")
    named: list[tuple[str, Path]] = []
    for pattern in source.paths:
        named += _one(os.path.expanduser(pattern), workspace, source.keep_folder)
    real = {os.path.realpath(path): (name, path) for name, path in named}  # a match of two globs counts once
    files = {os.path.abspath(path): name for name, path in real.values()}
    if len(set(files.values())) < len(files):
        shared = os.path.commonpath([os.path.dirname(path) for path in files])
        if source.keep_folder:
            shared = os.path.dirname(shared)
        files = {path: Path(os.path.relpath(path, shared)).as_posix() for path in files}
    return {name: Path(path) for path, name in sorted(files.items(), key=lambda item: item[1])}


def present_pin(source: FileSource, workspace: Path) -> dict[str, Any]:
    """The pin of the files in their present state (`pins.files_pin`); raises as `locate`."""
    found = locate(source, workspace)
    with progress.bar("hash files", sum(path.stat().st_size for path in found.values())) as bar:
        entries = []
        for name, path in found.items():
            entries.append({"path": name, "bytes": path.stat().st_size, "sha256": sha256_file(path)})
            bar.update(path.stat().st_size)
    return files_pin(entries)


def _one(pattern: str, workspace: Path, keep_folder: bool) -> list[tuple[str, Path]]:
    """(name, path) of each file that one path or glob matches."""
    plain = workspace / pattern
    if plain.exists():  # also a real name with brackets in it
        if plain.is_dir():
            raise UserError(f"{pattern} is a folder; give a glob such as {pattern.rstrip('/')}/**/*.txt")
        paths, fixed = [plain], plain.parent
    else:
        fixed, rest = Path(plain.parts[0]), plain.parts[1:]
        # The folder before the first wildcard; a folder may have brackets in its name.
        while len(rest) > 1 and (not glob.has_magic(rest[0]) or (fixed / rest[0]).is_dir()):
            fixed, rest = fixed / rest[0], rest[1:]
        paths = real_files(fixed, rest)
    if not paths:
        raise UserError(_nothing_text(pattern, plain))
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path} is not a regular file")
        try:
            str(path).encode("utf-8")
        except UnicodeEncodeError:
            shown = os.fsencode(path).decode("utf-8", "backslashreplace")
            raise UserError(f"the name {shown} is not UTF-8; rename the file") from None
        if not os.access(path, os.R_OK):
            raise UserError(f"{path} cannot be read; check its permissions")
    fixed = Path(os.path.abspath(fixed))
    base = fixed.parent if keep_folder else fixed
    return [(Path(os.path.relpath(path, base)).as_posix(), path) for path in sorted(paths)]


def _nothing_text(pattern: str, plain: Path) -> str:
    if plain.is_symlink():
        return f"{pattern} is a link to a file that does not exist"
    folder = plain.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    names = sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    close = difflib.get_close_matches(PurePosixPath(pattern).name, names, n=3, cutoff=0.5) or names[:3]
    hint = f"; {folder} has {', '.join(close)}" if close else f"; {folder} is empty"
    return f"{pattern} matches no file{hint}; paths are relative to the workspace"
