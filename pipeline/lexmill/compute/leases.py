"""The GPUs and cores of this machine, leased one by one: a lock file for each, held by the process that uses it.

flock's locks end with their processes, however those end, so a killed training gives its GPU back. All workspaces of a
machine share the folder (`lease_root`), so that runs beside each other do not meet on one device.

Whoever waits holds the queue's lock while it collects, so that a stage that needs several gets them in its turn.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from lexmill.base.errors import UserError
from lexmill.compute.place import Place

VISIBLE = "CUDA_VISIBLE_DEVICES"
_POLL_SECONDS = 0.2

Kind = Literal["gpu", "core"]


def gpu_names() -> list[str]:
    """The ids of the GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else all."""
    by_index = dict(_installed_gpus())
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return list(by_index.values()) or _torchs_gpus()
    return [by_index.get(name.strip(), name.strip()) for name in visible.split(",") if name.strip()]


def _installed_gpus() -> Iterator[tuple[str, str]]:
    """(index, id) of each GPU that the driver names."""
    try:
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return  # no NVIDIA driver here
    for line in told.splitlines():
        index, _, name = line.partition(",")
        yield index.strip(), name.strip()


def _torchs_gpus() -> list[str]:
    """The GPUs that torch sees, where there is no nvidia-smi to name them."""
    if find_spec("torch") is None:
        return []
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def core_names() -> list[str]:
    """The cores that this process may use; none where the system does not say so."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return [str(core) for core in sorted(os.sched_getaffinity(0))]


@contextmanager
def leased(place: Place, folder: str | Path, note: Callable[[str], None], *, gpus: bool = True) -> Iterator[None]:
    """Hold a stage's GPUs and cores; while they are held this process sees no others.

    Args:
        place: what the stage is to get.
        folder: where the lock files of this machine lie.
        note: told when it has to wait.
        gpus: whether GPUs are leased too; a cluster's job has got its own.

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
    """Hold `count` of the devices, after waiting for them."""
    _make(folder)
    held: dict[str, int] = {}
    try:
        with _queue(folder / f"{kind}-queue"):
            told = False
            while True:
                for name in names:
                    if len(held) < count and name not in held:
                        held |= _try(folder, kind, name)
                if len(held) == count:
                    break
                if not told:
                    what = "GPU" if kind == "gpu" else "core"
                    note(f"waiting for {count} {what}{'s' if count > 1 else ''}: {len(held)} of {len(names)} free")
                    told = True
                time.sleep(_POLL_SECONDS)
        yield sorted(held, key=list(names).index)
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _make(folder: Path) -> None:
    """Make the folder; everyone of this machine may lease there."""
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    except FileExistsError:
        return


@contextmanager
def _queue(path: Path) -> Iterator[None]:
    descriptor = _open(path)
    try:
        while not _lock(descriptor):
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try(folder: Path, kind: Kind, name: str) -> dict[str, int]:
    descriptor = _open(folder / f"{kind}-{''.join(c if c.isalnum() else '-' for c in name)}")
    if _lock(descriptor):
        return {name: descriptor}
    os.close(descriptor)
    return {}


def _open(path: Path) -> int:
    """Open for locking alone: another user's file too, and never through a link that somebody laid there."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CREAT, 0o644)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
