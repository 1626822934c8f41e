"""Leases of this machine's GPUs and cores: a lock file for each, held by the process that uses it.

flock's locks end with their processes, so a killed training gives its GPU back. All workspaces of a machine share the
folder (`lease_root`), so concurrent runs never share a device. A waiting process holds the queue's lock while it
collects, so a stage that needs several devices gets them in its turn.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.compute.place import Place

VISIBLE = "CUDA_VISIBLE_DEVICES"
_POLL_SECONDS = 0.2

Kind = Literal["gpu", "core"]


def gpu_names() -> list[str]:
    """Return the ids of the GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else all."""
    by_index = dict(_installed_gpus())
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return list(by_index.values()) or _torchs_gpus()
    return [by_index.get(name.strip(), name.strip()) for name in visible.split(",") if name.strip()]


def _installed_gpus() -> Iterator[tuple[str, str]]:
    """Yield (index, id) of each GPU of the driver."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return  # no NVIDIA driver here
    for line in listed.splitlines():
        index, _, name = line.partition(",")
        yield index.strip(), name.strip()


def _torchs_gpus() -> list[str]:
    """Return the GPUs that torch sees, for machines without nvidia-smi."""
    if find_spec("torch") is None:
        return []
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def core_names() -> list[str]:
    """Return the cores that this process may use; none where the system cannot tell."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return [str(core) for core in sorted(os.sched_getaffinity(0))]


@contextmanager
def leased(place: Place, folder: str | Path, note: Callable[[str], None], *, gpus: bool = True) -> Iterator[None]:
    """Hold a stage's GPUs and cores; while they are held this process sees no others.

    Args:
        place: the stage's devices.
        folder: of this machine's lock files.
        note: called when it has to wait.
        gpus: whether to lease GPUs too; a cluster's job has its own.

    Raises:
        UserError: the machine has fewer.
    """
    with ExitStack() as stack:
        if place.cpus:
            cores = _names("core", core_names(), place)
            if len(cores) > place.cpus:
                cores = stack.enter_context(_several("core", cores, place.cpus, Path(folder), note))
            stack.enter_context(_on_cores([int(core) for core in cores]))
        if gpus and place.gpus:
            found = _names("gpu", gpu_names(), place)
            names = stack.enter_context(_several("gpu", found, place.gpus, Path(folder), note))
            stack.enter_context(_seeing(names))
        yield


def _names(kind: Kind, names: list[str], place: Place) -> list[str]:
    wanted = place.gpus if kind == "gpu" else place.cpus
    if len(names) < wanted:
        key = "gpus" if kind == "gpu" else "cpus"
        hint = "; without GPUs choose accelerator cpu" if kind == "gpu" and not names else ""
        raise UserError(
            f"{place.stage}: {key}: {wanted} are asked for, but this machine has {len(names)} to give{hint}"
        )
    return names


@contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _seeing(gpus: Sequence[str]) -> Iterator[None]:
    before = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = ",".join(gpus)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = before


@contextmanager
def _several(
    kind: Kind, names: Sequence[str], count: int, folder: Path, note: Callable[[str], None]
) -> Iterator[list[str]]:
    """Wait for `count` of the devices and hold them."""
    _make(folder)
    held: dict[str, int] = {}
    try:
        with _queue(folder / f"{kind}-queue"):
            said = False
            while True:
                for name in names:
                    if len(held) < count and name not in held:
                        held |= _try(folder, kind, name)
                if len(held) == count:
                    break
                if not said:
                    what = "GPU" if kind == "gpu" else "core"
                    note(f"waiting for {count} {what}{'s' if count > 1 else ''}: {len(held)} of {len(names)} free")
                    said = True
                time.sleep(_POLL_SECONDS)
        yield sorted(held, key=list(names).index)
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _make(folder: Path) -> None:
    """Make the folder, writable for all users of this machine."""
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    except FileExistsError:
        return


@contextmanager
def _queue(path: Path) -> Iterator[None]:
    descriptor = _open(path)
    try:
        while not storage.try_lock(descriptor):
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try(folder: Path, kind: Kind, name: str) -> dict[str, int]:
    descriptor = _open(folder / f"{kind}-{''.join(c if c.isalnum() else '-' for c in name)}")
    if storage.try_lock(descriptor):
        return {name: descriptor}
    os.close(descriptor)
    return {}


def _open(path: Path) -> int:
    """Open only for locking: also another user's file, never through a symbolic link."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CREAT, 0o644)
