"""Globs over paths and folders, as in `glob.glob(recursive=True)`, in bounded time.

`*` stays within a folder and skips hidden files, `**` crosses folders. A pattern is matched segment by segment like a
regular expression by its automaton: O(segments) for each part of a path, whatever the names. A folder is read once for
each state of the pattern, so links that lead back to a folder above end.
"""

from __future__ import annotations

import fnmatch
import os
from functools import cache
from pathlib import Path

Reached = tuple[bool, ...]
"""After some parts of a path: whether they match the first j segments of the pattern, for each j."""


@cache
def parse_glob(glob: str) -> tuple[str, ...]:
    """A glob as its path segments; one without '/' matches at any depth."""
    if "/" not in glob:
        return ("**", glob)
    return tuple(part for part in glob.split("/") if part not in ("", "."))


def matches(name: str, glob: str) -> bool:
    """Whether a relative path matches a glob."""
    wanted = parse_glob(glob)
    reached = _start(wanted)
    for part in name.split("/"):
        reached = _step(reached, part, wanted)
    return reached[-1]


def real_files(folder: Path, wanted: tuple[str, ...]) -> list[Path]:
    """Return the files below a folder that match, each real file once: under its shortest path, the first by name."""
    found: dict[str, Path] = {}
    seen: set[tuple[str, Reached]] = set()
    level = [(folder, _start(wanted))]
    while level:
        below: list[tuple[Path, Reached]] = []
        for place, reached in level:
            state = (os.path.realpath(place), reached)
            if state in seen:
                continue
            seen.add(state)
            for name in _names(place):
                now, path = _step(reached, name, wanted), place / name
                if now[-1] and path.is_file():
                    found.setdefault(os.path.realpath(path), path)
                if any(now) and path.is_dir():
                    below.append((path, now))
        level = below
    return list(found.values())


def fits(name: str, glob: str) -> bool:
    """Return whether a name is the glob to the letter, as `a[1]`, or matches it."""
    return name == glob or fnmatch.fnmatchcase(name, glob)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # as `glob` does


def _start(wanted: tuple[str, ...]) -> Reached:
    reached = [True]
    for j, segment in enumerate(wanted):
        reached.append(reached[j] and segment == "**" and j + 1 < len(wanted))
    return tuple(reached)


def _step(reached: Reached, part: str, wanted: tuple[str, ...]) -> Reached:
    hidden = part.startswith(".")
    now = [False]
    for j, segment in enumerate(wanted):
        if segment == "**":
            here = not hidden and (reached[j] or reached[j + 1])
            now.append(here or (now[j] and j + 1 < len(wanted)))
        else:
            seen = not hidden or segment.startswith(".")
            now.append(reached[j] and seen and fits(part, segment))
    return tuple(now)
