"""The checkpoints kept under the checkpoint root: whose they are, their size, and which may be removed.

A finished training leaves milestones and the last checkpoint from which a longer training can continue (a fork). An
abandoned one leaves all, since it might resume. Nothing else removes them, so they are listed here and removed on
request: forks, and abandoned trainings except the newest of each model. Milestones stay.
"""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lexmill.base import storage
from lexmill.runner.leftovers import size_of

_FOLDER = re.compile(r"(.+)-[0-9a-f]{64}")
_MARK = "COMPLETE"


@dataclass(frozen=True)
class Kept:
    """The checkpoints of one training.

    Attributes:
        steps: each complete checkpoint with why it stays ("": to resume from, "fork", "milestone").
        size: bytes.
        in_use: a training holds the folder now.
        newest: written last among the model's unfinished trainings.
    """

    path: Path
    model: str
    steps: dict[str, str]
    size: int
    in_use: bool
    newest: bool

    @property
    def ended(self) -> bool:
        """Return whether the training was finished: only what was meant to stay is left."""
        return all(self.steps.values()) and bool(self.steps)

    @property
    def removable(self) -> list[Path]:
        """Return what `--checkpoints` removes."""
        if self.in_use:
            return []
        if not self.ended:
            return [] if self.newest else [self.path]
        forks = [self.path / step for step, stays in self.steps.items() if stays == "fork"]
        return [self.path] if len(forks) == len(self.steps) else forks

    def __str__(self) -> str:
        what = "in use" if self.in_use else "to resume from" if not self.ended else ""
        kinds = {stays for stays in self.steps.values() if stays}
        if not what:
            what = " and ".join(
                {"fork": "a longer training can continue from it", "milestone": "kept on purpose"}[kind]
                for kind in sorted(kinds)
            )
        may = ", `--fix --checkpoints` removes " + ("it" if self.removable == [self.path] else "the fork")
        last = max(self.steps, default="none complete").removeprefix("step-").lstrip("0") or "0"
        return (
            f"{self.model}, step {last}, {self.size / 1e6:,.1f} MB ({what}{may if self.removable else ''}): {self.path}"
        )


def kept(root: Path) -> list[Kept]:
    """Return all trainings under a checkpoint root, by model."""
    folders = [path for path in sorted(root.glob("*-*")) if path.is_dir() and _FOLDER.fullmatch(path.name)]
    read = [(path, _model(path), _steps(path)) for path in folders]
    newest: dict[str, Path] = {}
    for path, model, steps in read:
        ended = bool(steps) and all(steps.values())
        if not ended and (model not in newest or _written(path) > _written(newest[model])):
            newest[model] = path
    return [
        Kept(path, model, steps, size_of(path), _in_use(path), newest.get(model) == path) for path, model, steps in read
    ]


def remove(one: Kept) -> int:
    """Remove a training's removable checkpoints, unless in use by now; return the bytes freed."""
    before = size_of(one.path)
    with open(one.path / "lock", "a", encoding="utf-8") as lock:
        if not storage.try_lock(lock):
            return 0
        for path in one.removable:
            shutil.rmtree(path)
    return before - (size_of(one.path) if one.path.exists() else 0)


def half_saved(root: Path) -> Iterator[Path]:
    """Yield checkpoints that a killed training was writing."""
    for folder in sorted(root.glob("*-*")):
        if _FOLDER.fullmatch(folder.name) and not _in_use(folder):
            yield from sorted(folder.glob(".step-*.tmp"))


def _model(path: Path) -> str:
    found = _FOLDER.fullmatch(path.name)
    return found[1] if found else path.name


def _steps(path: Path) -> dict[str, str]:
    """Return why each complete checkpoint stays."""
    steps = {}
    for mark in sorted(path.glob(f"step-*/{_MARK}")):
        try:
            steps[mark.parent.name] = str(storage.read_json(mark).get("stays", ""))
        except (OSError, ValueError, AttributeError):
            continue
    return steps


def _written(path: Path) -> float:
    return max((one.stat().st_mtime for one in path.glob(f"step-*/{_MARK}")), default=path.stat().st_mtime)


def _in_use(path: Path) -> bool:
    lock = path / "lock"
    if not lock.is_file():
        return False
    with open(lock, "rb") as stream:
        return not storage.try_lock(stream, fcntl.LOCK_SH)
