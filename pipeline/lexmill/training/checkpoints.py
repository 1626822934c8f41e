"""Resumable checkpoints that survive a kill at any moment.

    <checkpoint root>/<name>-<fingerprint>/
        lock                     held while a training runs here
        identity.json            what the fingerprint is computed from
        step-00000200/           written under another name, flushed, renamed
            weights.safetensors  optimizer.safetensors  best.safetensors  kept-0.safetensors ...  random.safetensors
            weights-00000-of-00002.safetensors ...      instead of one file, if ranks hold parts of a model
            state.json           step, curve, best so far, random states that are no tensors
            COMPLETE             JSON with the hash of every file, written last: without it nothing is trusted

Only safetensors and JSON: nothing in a checkpoint is unpickled. Each rank writes its own share; the first waits for the
others' hashes, which they leave as files, and marks the checkpoint complete. The newest two are kept; milestones, and
the last checkpoint that a longer training can resume from, are kept for good.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexmill.base.errors import RetryableError, UserError
from lexmill.base.storage import canonical_json, fingerprint, flush_folder, read_json, sha256_file, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from lexmill.training.pieces import Piece, Reader

_MARK = "COMPLETE"
_STATE = "state.json"
_IDENTITY = "identity.json"
_SUFFIX = ".safetensors"
_KEPT = 2
_STEP = re.compile("step-[0-9]{8,12}")
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)  # what damaged JSON leads to

Stays = Literal["", "milestone", "fork"]
"""Why a checkpoint outlives the newest two: it is a milestone, or a longer training can resume from it."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint as found: JSON state, and tensors by file (`weights`, `optimizer`, ...), read on demand."""

    step: int
    state: dict[str, Any]
    files: dict[str, Reader]

    def read(self, name: str) -> dict[str, Tensor]:
        """Return all tensors of one file, whole."""
        return self.files[name].whole()


@dataclass(frozen=True)
class Share:
    """Which part of a checkpoint this process writes.

    Attributes:
        rank, world: among the processes that write.
        attempt: a number that they share and that no earlier run had.
        given_up: set when the training has failed and no process should wait for another.
    """

    rank: int = 0
    world: int = 1
    attempt: int = field(default_factory=os.getpid)
    given_up: threading.Event = field(default_factory=threading.Event)

    def file(self, name: str) -> str:
        """Return the file name of one group of tensors."""
        part = f"-{self.rank:05d}-of-{self.world:05d}" if self.world > 1 else ""
        return f"{name}{part}{_SUFFIX}"


class CheckpointFolder:
    """The checkpoints of one training, identified by the fingerprint of its identity.

    Args:
        root: the checkpoint root.
        name: the model's name.
        identity: all that determines the trajectory: inputs, code, params, seeds, precision; as JSON can hold it.
    """

    def __init__(self, root: str | Path, name: str, identity: Mapping[str, Any]) -> None:
        # As it comes back from a checkpoint: a tuple is a list there.
        self.identity, self.name = json.loads(canonical_json(dict(identity))), name
        self.path = Path(root).absolute() / f"{name}-{fingerprint(self.identity)}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one training; the lock ends with the process, also by kill -9.

        Raises:
            RetryableError: another process trains the same right now.
            UserError: the folder cannot be created.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (PermissionError, NotADirectoryError, FileExistsError, FileNotFoundError) as error:
            problem = f"checkpoints cannot be written here ({error.strerror}); choose another checkpoint_root"
            raise UserError(problem, self.path.parent) from None
        with open(self.path / "lock", "a", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RetryableError(f"another run trains this very model now ({self.path}); wait for it") from None
            for stale in self.path.glob(".step-*.tmp"):  # of a killed writer
                shutil.rmtree(stale)
            yield

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        tensors: Mapping[str, Mapping[str, Piece | Tensor]],
        *,
        stays: Stays = "",
        share: Share | None = None,
    ) -> None:
        """Write this process's share of the checkpoint of `step`; the first process marks it complete when all have.

        Then all but the newest two, and those that stay, are removed.

        Raises:
            UserError: a number is not finite; no checkpoint is made.
        """
        share = share or Share()
        beside = self.path / f".step-{step:08d}.{share.attempt}.tmp"
        beside.mkdir(parents=True, exist_ok=True)
        try:
            hashes = {
                share.file(name): _write(beside / share.file(name), named) for name, named in tensors.items() if named
            }
        except BaseException as error:
            if share.rank:
                _hand_in(beside / _part(share.rank), {"error": str(error)})
            raise
        if share.rank:
            flush_folder(beside)
            _hand_in(beside / _part(share.rank), {"files": hashes})
            return
        for rank in range(1, share.world):
            hashes |= _part_of(beside / _part(rank), share.given_up)
        write_json(beside / _STATE, {**state, "step": step, "identity": self.identity})
        hashes[_STATE] = sha256_file(beside / _STATE)
        self._place(beside, step, {"step": step, "files": hashes, "stays": stays})

    def _place(self, beside: Path, step: int, mark: dict[str, Any]) -> None:
        """Move a written checkpoint into place, mark it, and remove those it supersedes."""
        identity, target = self.path / _IDENTITY, self.path / f"step-{step:08d}"
        if not identity.exists():
            write_json(identity, self.identity)
        flush_folder(beside)
        if target.exists():
            shutil.rmtree(target)
        os.rename(beside, target)
        flush_folder(self.path)
        write_json(target / _MARK, mark)
        steps = self._steps()
        now = steps.index(target)
        # Later ones are damaged, never marked, or of a training of another length: none was usable.
        earlier, later = ([one for one in part if not _stays(one)] for part in (steps[:now], steps[now + 1 :]))
        for other in earlier[: max(0, len(earlier) + 1 - _KEPT)] + later:
            shutil.rmtree(other)

    def latest(self, usable: Callable[[dict[str, Any]], bool] = lambda _: True) -> int | None:
        """Return the step of the newest complete checkpoint whose state is `usable`; damaged ones are skipped.

        Raises:
            UserError: another training made it; names what differs.
        """
        for folder in reversed(self._steps()):
            try:
                if self._sound(folder) and usable(self._state(folder)):
                    return int(folder.name.removeprefix("step-"))
            except _DAMAGED:
                continue
        return None

    def open(self, step: int) -> Saved:
        """Open a checkpoint that `latest` found."""
        from lexmill.training.pieces import Reader

        folder = self.path / f"step-{step:08d}"
        groups: dict[str, list[Path]] = {}
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            name, _, part = path.name.removesuffix(_SUFFIX).rpartition("-of-")
            groups.setdefault(name.rpartition("-")[0] if name else part, []).append(path)
        return Saved(step, self._state(folder), {name: Reader(paths) for name, paths in groups.items()})

    def relatives(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> list[tuple[Path, dict[str, Any]]]:
        """Return other folders of this name whose identity is the same after `change`, with their identities."""
        found = []
        for folder in sorted(self.path.parent.glob(f"{self.name}-*")):
            try:
                identity = read_json(folder / _IDENTITY)
                if (
                    folder != self.path
                    and any(folder.glob(f"step-*/{_MARK}"))
                    and change(identity) == change(self.identity)
                ):
                    found.append((folder, identity))
            except _DAMAGED:
                continue
        return found

    def finish(self) -> None:
        """Remove, once outputs are in place, all but milestones and the last checkpoint to resume a longer run from."""
        kept = [folder for folder in self._steps() if _stays(folder) == "milestone"]
        kept += [folder for folder in self._steps() if _stays(folder) == "fork"][-1:]
        for folder in self._steps():
            if folder not in kept:
                shutil.rmtree(folder)
        if not kept:
            shutil.rmtree(self.path, ignore_errors=True)

    def _steps(self) -> list[Path]:
        return sorted(path for path in self.path.glob("step-*") if _STEP.fullmatch(path.name))

    def _sound(self, folder: Path) -> bool:
        try:
            files = read_json(folder / _MARK)["files"]
            there = {path.name for path in folder.iterdir()} - {_MARK}
            return there == set(files) and all(sha256_file(folder / name) == files[name] for name in files)
        except _DAMAGED:
            return False

    def _state(self, folder: Path) -> dict[str, Any]:
        state: dict[str, Any] = read_json(folder / _STATE)
        differing = [
            key
            for key in sorted({*self.identity, *state["identity"]})
            if self.identity.get(key) != state["identity"].get(key)
        ]
        if differing:
            raise UserError(
                f"this checkpoint belongs to another training; what differs: {', '.join(differing)}. Remove the folder",
                folder,
            )
        return state


def _stays(folder: Path) -> str:
    """Return why a checkpoint is kept for good; empty if it is not."""
    try:
        return str(read_json(folder / _MARK).get("stays", ""))
    except _DAMAGED:
        return ""


def _write(path: Path, named: Mapping[str, Piece | Tensor]) -> str:
    from lexmill.training.pieces import Piece, write

    pieces = {name: one if isinstance(one, Piece) else Piece.of(one) for name, one in named.items()}
    for name, piece in pieces.items():
        if piece.data.is_floating_point() and not piece.data.isfinite().all():
            raise UserError(
                f"'{name}' of {path.name} is not finite any more and was not saved: lower optimizer.lr, lengthen"
                " schedule.warmup or set clip_norm; the same command resumes from the checkpoint before"
            )
    return write(path, pieces)


def _part(rank: int) -> str:
    return f"rank-{rank:05d}.json"


def _hand_in(path: Path, value: Any) -> None:
    """Leave a rank's hashes for the first process, which may rename the folder as soon as it sees them."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(canonical_json(value), encoding="utf-8")
    unfinished.replace(path)


def _part_of(path: Path, given_up: threading.Event) -> dict[str, str]:
    """Wait for the hashes that another rank leaves when it has written; return and remove them."""
    while not path.exists():
        if given_up.is_set():
            raise RetryableError(f"another process of this training has ended before it wrote {path}; run again")
        time.sleep(0.01)
    part = read_json(path)
    if "error" in part:
        raise UserError(part["error"])
    path.unlink()
    files: dict[str, str] = part["files"]
    return files
