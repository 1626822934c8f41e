"""Resumable checkpoints that a kill at any moment cannot spoil.

    <checkpoint root>/<name>-<fingerprint>/
        lock                     held while a training runs here
        identity.json            what the fingerprint was made of
        step-00000200/           written beside, flushed, renamed
            weights.safetensors  optimizer.safetensors  best.safetensors  recent-0.safetensors ...  random.safetensors
            state.json           step, curve, best so far, random states that are no tensors
            COMPLETE             JSON with the hash of every file, written last: readers trust nothing without it

Only safetensors and JSON: nothing in a checkpoint is unpickled. The newest two are kept. The folder goes when the
stage is done and its outputs are in place.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.errors import RetryableError, UserError
from lexmill.storage import fingerprint, new_folder, read_json, sha256_file, write_json

if TYPE_CHECKING:
    from torch import Tensor

_MARK = "COMPLETE"
_STATE = "state.json"
_IDENTITY = "identity.json"
_SUFFIX = ".safetensors"
_KEPT = 2


@dataclass(frozen=True)
class Saved:
    """A checkpoint as read: JSON state, and named tensors by file (`weights`, `optimizer`, ...)."""

    step: int
    state: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]


class CheckpointFolder:
    """The checkpoints of one training, told from all others by the fingerprint of its identity.

    Args:
        root: the checkpoint root.
        name: the model's name.
        identity: whatever the trajectory is a function of: inputs, code, params, seeds, precision (plain JSON data).
    """

    def __init__(self, root: str | Path, name: str, identity: Mapping[str, Any]) -> None:
        self.identity = dict(identity)
        self.path = Path(root).absolute() / f"{name}-{fingerprint(self.identity)}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one training; the lock falls with the process, also by kill -9.

        Raises:
            RetryableError: when another process trains the same right now.
            UserError: when the folder cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (PermissionError, NotADirectoryError, FileExistsError) as error:
            problem = f"checkpoints cannot be written here ({error.strerror}); choose another checkpoint_root"
            raise UserError(problem, self.path.parent) from None
        with open(self.path / "lock", "a", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RetryableError(f"another run trains this very model now ({self.path}); wait for it") from None
            yield

    def save(self, step: int, state: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Write the checkpoint of `step`, mark it complete, and remove all but the newest two."""
        from safetensors.torch import save_file

        identity = self.path / _IDENTITY
        if not identity.exists():
            write_json(identity, self.identity)
        target = self.path / f"step-{step:08d}"
        with new_folder(target) as folder:
            for name, named in tensors.items():
                save_file(dict(named), folder / f"{name}{_SUFFIX}")
            write_json(folder / _STATE, {**state, "step": step, "identity": self.identity})
            hashes = {path.name: sha256_file(path) for path in sorted(folder.iterdir())}
        write_json(target / _MARK, {"step": step, "files": hashes})
        steps = self._steps()
        now = steps.index(target)
        # Later ones are damaged or were never marked: this training has passed over them.
        for other in steps[: max(0, now + 1 - _KEPT)] + steps[now + 1 :]:
            shutil.rmtree(other)

    def latest(self) -> Saved | None:
        """The newest complete checkpoint, or None; one that is unmarked or damaged is passed over.

        Raises:
            UserError: when it was made by another training, naming what differs.
        """
        for folder in reversed(self._steps()):
            if self._sound(folder):
                return self._read(folder)
        return None

    def remove(self) -> None:
        """Remove all of it: the training is done and its outputs are in place."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _steps(self) -> list[Path]:
        return sorted(self.path.glob("step-*"))

    def _sound(self, folder: Path) -> bool:
        try:
            files = read_json(folder / _MARK)["files"]
            there = {path.name for path in folder.iterdir()} - {_MARK}
            return there == set(files) and all(sha256_file(folder / name) == files[name] for name in files)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def _read(self, folder: Path) -> Saved:
        from safetensors.torch import load_file

        state = read_json(folder / _STATE)
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
        tensors = {path.name.removesuffix(_SUFFIX): load_file(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))}
        return Saved(step=state["step"], state=state, tensors=tensors)
