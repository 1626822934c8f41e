"""Find what dead processes left: half-written folders, held paths, server addresses, worktrees.

A writer's file has its process id, `.<name>.<process id>.tmp`, so one whose process is gone is stale. Cost: a walk
over the folders of the outputs, not their contents.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lexmill.base import layout, storage
from lexmill.base.answering import answers
from lexmill.base.checkout import git
from lexmill.base.workspace import HOME
from lexmill.corpora.fetching.downloads import DownloadCache
from lexmill.runner.mending import damaged_caches, mend_rwlock, stale_holders

_OF_A_WRITER = re.compile(r"\..+\.(\d+)(\.[a-z]+)?\.tmp")
_OF_A_NIGHT = ".nightly-"
_OF_A_LOOK = (".look-", ".apt-")
_OLD_SECONDS = 24 * 3600.0
_DEPTH = 3  # artifacts/<kind>/<name>; deeper files belong to a finished output


@dataclass(frozen=True)
class Finding:
    """An error of the workspace.

    Attributes:
        what: the message.
        todo: what the user can do.
        fix: repairs it, or raises a `LexmillError`; None: only the user can.
    """

    what: str
    todo: str
    fix: Callable[[], None] | None = None

    def __str__(self) -> str:
        return f"{self.what}; {self.todo}"


def counted(number: int, what: str) -> str:
    """Format as `1 checkpoint`, `2 checkpoints`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def half_written(root: Path) -> Iterator[Finding]:
    """Find files and folders that killed writers left beside their targets."""
    places = [root, root / HOME, *(root / folder for folder in (layout.ARTIFACTS, layout.METRICS, layout.REPORTS))]
    found = sorted({path for place in places for path in _stale(place, 0 if place == root else _DEPTH)})
    found += [path for path in _downloads(root) if path not in found]
    if found:
        size = sum(size_of(path) for path in found)
        shown = ", ".join(_shown(path, root) for path in found[:4]) + (
            f" and {len(found) - 4} more" if found[4:] else ""
        )
        yield Finding(
            f"{counted(len(found), 'half-written path')} of dead processes ({size / 1e6:,.1f} MB): {shown}",
            "`lexmill doctor --fix` removes them",
            lambda: _remove(found),
        )


def _stale(place: Path, depth: int) -> Iterator[Path]:
    try:
        entries = list(os.scandir(place))
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        written = _OF_A_WRITER.fullmatch(entry.name)
        if written is not None:
            if not _lives(int(written[1])):
                yield path
        elif entry.name.startswith(_OF_A_NIGHT) and place.name == HOME.name:
            if _age(path) > _OLD_SECONDS:
                yield path
        elif depth and entry.is_dir(follow_symlinks=False):
            yield from _stale(path, depth - 1)


def _downloads(root: Path) -> Iterator[Path]:
    """Yield stale temporary files of the download cache; other workspaces share it, so they must be old."""
    for folder in DownloadCache(root).folders:
        with contextlib.suppress(OSError):
            for path in folder.iterdir():
                if path.name.startswith(_OF_A_LOOK) and _age(path) > _OLD_SECONDS:
                    yield path


def _age(path: Path) -> float:
    try:
        return time.time() - path.lstat().st_mtime
    except OSError:
        return 0.0


def _lives(pid: int) -> bool:
    import psutil

    try:
        return pid > 0 and bool(psutil.pid_exists(pid))
    except OverflowError:  # no process has such a number
        return False


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    total = 0
    for one in [path, *path.rglob("*")] if path.is_dir() else [path]:
        with contextlib.suppress(OSError):
            if not one.is_dir():
                total += one.lstat().st_size
    return total


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def held_paths(root: Path) -> Iterator[Finding]:
    """Find paths that DVC has as held by dead processes."""
    folder = root / ".dvc" / "tmp"
    if dead := stale_holders(folder):
        yield Finding(
            f"DVC has paths as held by processes that are gone: {', '.join(dead)}",
            "`lexmill doctor --fix` frees them, and so does the next run",
            lambda: mend_rwlock(folder),
        )


def damaged_hashes(root: Path) -> Iterator[Finding]:
    """Find caches of DVC that are damaged."""
    if damaged := damaged_caches(root):
        yield Finding(
            f"DVC's caches of hashes are damaged: {', '.join(map(str, damaged))}",
            "`lexmill doctor --fix` removes them, and DVC reads the files anew",
            partial(_remove, damaged),
        )


def servers(root: Path) -> Iterator[Finding]:
    """Find addresses of servers that no longer answer."""
    for path in sorted((root / HOME / "servers").glob("*.json")):
        name = path.stem
        try:
            known = storage.read_json(path)
            pid, url = int(known["pid"]), str(known["url"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            pid, url = 0, ""
        if _lives(pid):
            if not answers(f"{url}/api/health") and not answers(f"{url}/health"):
                yield Finding(
                    f"the {name} server (process {pid}) does not answer at {url}",
                    f"look into {HOME}/logs/{name}-server.log; if it hangs, end the process",
                )
            continue
        yield Finding(
            f"{path.relative_to(root)} names a {name} server that is gone",
            "`lexmill doctor --fix` removes the file",
            partial(_remove, [path]),
        )


def worktrees(root: Path) -> Iterator[Finding]:
    """Find worktrees that git knows and whose folders are gone."""
    gone, current = [], ""
    for line in (git(root, "worktree", "list", "--porcelain") or "").split("\n"):
        if line.startswith("worktree "):
            current = line.removeprefix("worktree ")
        elif line.startswith("prunable"):
            gone.append(current)
    if gone:
        yield Finding(
            f"git knows worktrees whose folders are gone: {', '.join(gone)}",
            "`lexmill doctor --fix` (or `git worktree prune`) forgets them",
            partial(_prune, root),
        )


def _prune(root: Path) -> None:
    git(root, "worktree", "prune")


def kept_worktrees(root: Path) -> list[Path]:
    """Return the worktrees that `lexmill run --worktree` made."""
    return sorted(path.parent.parent for path in (root / HOME / "worktrees").glob(f"*/{HOME}/worktree.json"))
