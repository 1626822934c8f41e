"""`micro_batch: auto`: finds by trial how many tokens go through the network at once.

How a batch is cut changes a step's speed and memory, but its losses only in the last digits and in dropout, whose masks
each micro-batch draws for itself. Sizes of 1, 2, 4, ... rows of the first batch, and the whole batch, are tried with
forward and backward, each twice, until memory runs out; the fastest wins, and of equally fast ones the smaller. On a
CPU small sizes often win: they fit the caches. There, running out of memory would kill the process, so a size is tried
only if the peaks of smaller ones say that it fits; on a GPU running out is caught.

Weights, gradients, buffers and random states are left as they were. The result is kept in a file, so that the same
training on this machine, also a resumed one, cuts its batches the same way. Cost: about four steps.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import progress
from lexmill.base.errors import UserError
from lexmill.base.storage import read_json, write_json
from lexmill.training.task import Arrays, count_rows, row_width

if TYPE_CHECKING:
    import torch
    from torch import nn

Trial = Callable[[Arrays], object]
"""Forward and backward over some rows, as a step does them."""

_WORTH = 0.97  # a size is faster if it needs less than this share of the time
_TAKEN = 0.8  # the share of free memory that a size may need
_BEYOND_KEPT = 1.5  # bytes that a step takes for each byte kept for the backward pass: temporary gradients
_REPETITIONS = 2
_NO_ROOM = 1 << 50  # instead of microseconds: out of memory


def choose(
    batch: Arrays,
    trial: Trial,
    module: nn.Module,
    *,
    kept: Path,
    key: Mapping[str, Any],
    agree: Callable[[int], int] = int,
) -> int:
    """Return this training's micro-batch on this machine, in tokens: read from `kept`, or found now and written there.

    Args:
        batch: this rank's rows of a global batch.
        trial: forward and backward over some of its rows, without exchange between ranks.
        module: the network; its gradients and random states are restored.
        kept: the file of the result.
        key: what it depends on (training, devices, threads): plain JSON data.
        agree: returns the largest of an integer over all ranks, so that all try and take the same size.
    """
    where = {**key, "device": _device_name(module)}
    found = _read(kept, where)
    if agree(0 if found else 1):
        found = find(batch, trial, module, agree=agree)
        write_json(kept, {"key": where, "tokens": found})
    assert found is not None
    return found


def find(batch: Arrays, trial: Trial, module: nn.Module, *, agree: Callable[[int], int] = int) -> int:
    """Return the fastest micro-batch that fits, in tokens. Arguments as of `choose`.

    Raises:
        UserError: not even one row fits.
    """
    import torch

    rows, width = agree(count_rows(batch)), max(1, row_width(batch))
    best: tuple[float, int] | None = None
    # A compiled network would be recompiled for each size.
    with _untouched(module), _room_for_optimizer(module), torch.compiler.set_stance("force_eager"):
        memory = _Memory(module)
        with explain_out_of_memory(width):
            memory.ask({name: array[:1] for name, array in batch.items()}, trial)
        for size in _sizes(rows):
            part = {name: array[:size] for name, array in batch.items()}
            if agree(0 if memory.has_room(size) else 1):
                break
            took = agree(_timed(part, trial, module))
            memory.saw(size)
            if took == _NO_ROOM:
                break
            if best is None or took / size < _WORTH * best[0]:
                best = took / size, size
    if best is None:
        raise out_of_memory(width)
    tokens = best[1] * width
    progress.say(f"micro_batch: auto found {best[1]} of {rows} rows at once ({tokens:,} tokens)")
    return tokens


def out_of_memory(tokens: int) -> UserError:
    """Return the error for running out of memory with so many tokens at once (0: the whole batch)."""
    size = f"{tokens:,} tokens" if tokens else "the whole batch"
    return UserError(
        f"out of memory with {size} at once: lower micro_batch in conf/execution/ (or set it to auto), set"
        " activation_checkpointing there, then lower the model's context or width in params.yaml; batch_tokens may"
        " stay as it is"
    )


@contextmanager
def explain_out_of_memory(tokens: int) -> Iterator[None]:
    """Turn an out-of-memory error, of a GPU or a CPU's allocator, into `out_of_memory(tokens)`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if _ran_out(error):
            raise out_of_memory(tokens) from error
        raise


def _ran_out(error: BaseException) -> bool:
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = str(error)
    return any(sign in words for sign in ("can't allocate memory", "not enough memory", "out of memory"))


def _sizes(rows: int) -> list[int]:
    """Return 1, 2, 4, ... and all rows."""
    return [1 << power for power in range(max(1, rows).bit_length()) if 1 << power < rows] + [max(1, rows)]


def _timed(part: Arrays, trial: Trial, module: nn.Module) -> int:
    """Return the shortest time of a few trials, in microseconds; `_NO_ROOM` if memory ran out."""
    import torch

    device = _device(module)
    least = _NO_ROOM
    try:
        for _ in range(_REPETITIONS):
            begun = time.perf_counter()
            trial(part)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            least = min(least, int((time.perf_counter() - begun) * 1e6) + 1)
    except (RuntimeError, MemoryError) as error:
        if not _ran_out(error):
            raise
        least = _NO_ROOM
    if least == _NO_ROOM:  # not in `except`, where the error still holds the tensors
        module.zero_grad(set_to_none=True)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return least


@contextmanager
def _untouched(module: nn.Module) -> Iterator[None]:
    """Restore gradients, buffers and random states afterwards."""
    import torch

    from lexmill.training import random_states

    gradients = [parameter.grad for parameter in module.parameters()]
    buffers = [buffer.clone() for buffer in module.buffers()]
    states, rest = random_states.tensors(), random_states.plain()
    module.zero_grad(set_to_none=True)
    try:
        yield
    finally:
        for parameter, gradient in zip(module.parameters(), gradients, strict=True):
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, before in zip(module.buffers(), buffers, strict=True):
                buffer.copy_(before)
        random_states.restore(states, rest)
        if _device(module).type == "cuda":
            torch.cuda.empty_cache()


@contextmanager
def _room_for_optimizer(module: nn.Module) -> Iterator[None]:
    """Reserve the GPU memory of the optimizer's state (at most two numbers per weight), which is allocated later."""
    import torch

    held = []
    device = _device(module)
    if device.type == "cuda":
        own = [getattr(p, "to_local", lambda p=p: p)() for p in module.parameters() if p.requires_grad]
        held = [torch.empty(2 * p.numel(), dtype=p.dtype, device=device) for p in own]
    try:
        yield
    finally:
        held.clear()


class _Memory:
    """Predicts on a CPU whether a trial will fit, from what smaller ones took.

    A row takes what the process's peak grew by from size to size, and at least what autograd reports for the backward
    pass: the peak of a process that held more before does not grow.
    """

    def __init__(self, module: nn.Module) -> None:
        self._on_cpu = _device(module).type == "cpu"
        self._weights = {p.untyped_storage().data_ptr() for p in module.parameters()} if self._on_cpu else set()
        self._state = 2 * sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)
        self._size, self._peak, self._a_row = 0, _peak(), 0.0

    def ask(self, row: Arrays, trial: Trial) -> None:
        """Measure what autograd keeps of one row for the backward pass."""
        if not self._on_cpu:
            return
        import torch

        kept: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._weights:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            trial(row)
        self._a_row = _BEYOND_KEPT * sum(kept.values())

    def saw(self, size: int) -> None:
        """Record that a trial of this size has ended."""
        peak = _peak()
        if self._size:
            self._a_row = max(self._a_row, (peak - self._peak) / (size - self._size))
        self._size, self._peak = size, peak

    def has_room(self, size: int) -> bool:
        """Return whether `size` rows and the optimizer's state fit in free memory."""
        free = free_memory() if self._on_cpu and self._size else None
        return free is None or self._a_row * (size - self._size) + self._state < _TAKEN * free


def _peak() -> int:
    """Return the most memory that this process has held so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still take, on the machine and in its control groups; None: unknown.

    Args:
        root: where /proc and /sys are.
    """
    found = [room for room in (_machine_free(root), *_group_free(root)) if room is not None]
    return min(found) if found else None


def _machine_free(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return sizes[0] if sizes else None


def _group_free(root: Path) -> Iterator[int]:
    """Yield what the limits of this process's control group, and of its parents, leave free."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, most, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, most, used = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inside = base / path.lstrip("/")
        for folder in (inside, *inside.parents):
            limit, taken = _number(folder / most), _number(folder / used)
            if limit is not None and taken is not None:
                yield max(0, limit - taken + _cache(folder))
            if folder == base:
                break


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # no such limit; "max"


def _cache(folder: Path) -> int:
    """Return the bytes of the group's page cache that are freed when memory is short."""
    try:
        lines = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    pairs = dict(line.split() for line in lines)
    return int(pairs.get("inactive_file", pairs.get("total_inactive_file", 0)))


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _device_name(module: nn.Module) -> str:
    import torch

    device = _device(module)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _read(kept: Path, where: Mapping[str, Any]) -> int | None:
    try:
        found = read_json(kept)
        return int(found["tokens"]) if found["key"] == where else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
