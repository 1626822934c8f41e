"""List the experiments of `dvc exp run` in a workspace, and get their files from git and DVC's cache.

DVC keeps an experiment as a commit under refs/exps/<commit that it started from>/<name>.
Cost: listing is one call of git; `taken_out` copies files from the cache.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lexmill.base.checkout import git
from lexmill.base.quiet import quieten

_REFS = "refs/exps/"


@dataclass(frozen=True)
class Experiment:
    """A finished experiment: its name, its commit, and the commit that it started from."""

    name: str
    commit: str
    baseline: str


def experiments(root: Path) -> list[Experiment]:
    """Return the finished experiments by name; none without git."""
    listed = git(root, "for-each-ref", "--format=%(refname) %(objectname)", _REFS)
    found = []
    for line in (listed or "").splitlines():
        name, _, commit = line.rpartition(" ")
        match name.removeprefix(_REFS).split("/"):
            case [start, rest, of_its_own] if len(start) + len(rest) == len(commit):
                found.append(Experiment(of_its_own, commit, start + rest))
            case _:
                continue  # queued or running
    return sorted(found, key=lambda one: one.name)


@contextmanager
def taken_out(root: Path, commit: str, paths: Sequence[str]) -> Iterator[Path]:
    """Yield a folder with these paths of a commit, from git or DVC's cache; missing paths are left out."""
    quieten()
    from dvc.fs.dvc import DVCFileSystem

    with tempfile.TemporaryDirectory(prefix="lexmill-experiment-") as folder:
        files = DVCFileSystem(url=str(root.resolve()), rev=commit)
        try:
            for path in paths:
                if files.exists(path):
                    place = Path(folder) / path
                    place.parent.mkdir(parents=True, exist_ok=True)
                    files.get(path, str(place), recursive=files.isdir(path))
            yield Path(folder)
        finally:
            files.close()
