"""`micro_batch: auto`: how many tokens go through the network at once, found by trying.

The losses of a step do not depend on how its batch is cut, but for the last digits and for dropout, whose masks each
micro-batch draws for itself, from the same distribution; its speed and memory do. Sizes of 1, 2, 4, ... rows of the
first batch, and the whole of it, are tried with forward and backward, each twice, until memory ends; the fastest is
taken, the smaller one of two that are as fast. On a CPU small ones often win: what does not fit the caches is slower.
A size that would not fit is not tried on a CPU, where running out kills the process: the peak of the sizes before it
says what the next would need. On a GPU running out is caught.

The trials leave weights, gradients, buffers and random states as they were. What was found stays in a file, so that a
resumed training, and the same training again on this machine, cuts its batches in the same way.
Cost: about four steps.
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
from lexmill.training.task import Arrays, count_rows

if TYPE_CHECKING:
    import torch
    from torch import nn

Trial = Callable[[Arrays], object]
"""Forward and backward over some rows, as a step does them."""

_WORTH = 0.97  # a size counts as faster when it needs less than this share of the time
_TAKEN = 0.8  # the share of what is free that a size may need
_BEYOND_KEPT = 1.5  # what a step takes for each byte that the backward pass needs: gradients on the way
_REPETITIONS = 2
_NO_ROOM = 1 << 50  # in place of microseconds


def choose(
    batch: Arrays,
    trial: Trial,
    module: nn.Module,
    *,
    kept: Path,
    key: Mapping[str, Any],
    agree: Callable[[int], int] = int,
) -> int:
    """The micro-batch of this training on this machine, in tokens: found before, or found now and written to `kept`.

    Args:
        batch: this rank's rows of a global batch.
        trial: forward and backward over some of its rows, without exchange between ranks.
        module: the network, whose gradients and random states are put back.
        kept: where what is found is kept.
        key: what it depends on (training, devices, threads): plain JSON data.
        agree: the largest of a whole number over all ranks, so that all try and take the same size.
    """
    where = {**key, "device": _device_name(module)}
    found = _read(kept, where)
    if agree(0 if found else 1):
        found = find(batch, trial, module, agree=agree)
        write_json(kept, {"key": where, "tokens": found})
    assert found is not None
    return found


def find(batch: Arrays, trial: Trial, module: nn.Module, *, agree: Callable[[int], int] = int) -> int:
    """The fastest micro-batch that fits, in tokens. Arguments as of `choose`.

    Raises:
        UserError: not even one row fits.
    """
    import torch

    rows, width = count_rows(batch), _width(batch)
    rows = agree(rows)
    best: tuple[float, int] | None = None
    # A compiled network would be compiled anew for each size.
    with _untouched(module), _room_for_optimizer(module), torch.compiler.set_stance("force_eager"):
        memory = _Memory(module)
        with memory_told(width):
            memory.ask({name: array[:1] for name, array in batch.items()}, trial)
        for size in _sizes(rows):
            part = {name: array[:size] for name, array in batch.items()}
            if agree(0 if memory.has_room(size) else 1):
                break
            took = agree(_timed(part, trial, module))
            memory.saw(size)
            if took == _NO_ROOM:
                break
            a_row = took / size
            if best is None or a_row < _WORTH * best[0]:
                best = a_row, size
    if best is None:
        raise out_of_memory(width)
    tokens = best[1] * width
    progress.say(f"micro_batch: auto found {best[1]} of {rows} rows at once ({tokens:,} tokens)")
    return tokens


def out_of_memory(tokens: int) -> UserError:
    """What a person reads when memory ends in a step of so many tokens at once (0: the whole batch)."""
    size = f"{tokens:,} tokens" if tokens else "the whole batch"
    return UserError(
        f"out of memory with {size} at once: lower micro_batch in conf/execution/ (or set it to auto), set"
        " activation_checkpointing there, then lower the model's context or width in params.yaml; batch_tokens may"
        " stay as it is"
    )


@contextmanager
def memory_told(tokens: int) -> Iterator[None]:
    """Turn running out of memory, on a GPU or where a CPU's allocator says so, into `out_of_memory(tokens)`."""
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


def _width(batch: Arrays) -> int:
    """Positions in a row, as `task.micro_batches` counts them."""
    return max(1, *(array.shape[1] if array.ndim > 1 else 1 for array in batch.values()))


def _sizes(rows: int) -> list[int]:
    """1, 2, 4, ... and all rows."""
    return [1 << power for power in range(max(1, rows).bit_length()) if 1 << power < rows] + [max(1, rows)]


def _timed(part: Arrays, trial: Trial, module: nn.Module) -> int:
    """The least time of a few trials, in microseconds; `_NO_ROOM` when memory ended."""
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
    if least == _NO_ROOM:  # outside of `except`: there the error still holds the tensors
        module.zero_grad(set_to_none=True)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return least


@contextmanager
def _untouched(module: nn.Module) -> Iterator[None]:
    """Put gradients, buffers and random states back."""
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
    """Hold as much memory of a GPU as an optimizer will: it makes its state (at most two numbers a weight) later."""
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
    """Tells before a trial on a CPU whether it will fit, from what the smaller ones took.

    A row takes as much as the process's peak grew by from size to size, and at least what the backward pass needs of
    it, as autograd tells: a process that held more before shows no growth.
    """

    def __init__(self, module: nn.Module) -> None:
        self._on_cpu = _device(module).type == "cpu"
        self._weights = {p.untyped_storage().data_ptr() for p in module.parameters()} if self._on_cpu else set()
        self._state = 2 * sum(p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)
        self._size, self._peak, self._a_row = 0, _peak(), 0.0

    def ask(self, row: Arrays, trial: Trial) -> None:
        """Ask autograd what the backward pass needs of one row."""
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
        """A trial of this size has ended."""
        peak = _peak()
        if self._size:
            self._a_row = max(self._a_row, (peak - self._peak) / (size - self._size))
        self._size, self._peak = size, peak

    def has_room(self, size: int) -> bool:
        """Whether `size` rows will fit in what is free beside the optimizer's state."""
        free = free_memory() if self._on_cpu and self._size else None
        return free is None or self._a_row * (size - self._size) + self._state < _TAKEN * free


def _peak() -> int:
    """The most memory that this process has held so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take: the machine's, or less where a control group sets a limit; None: unknown.

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
    """What the limits of this process's control group, and of those above it, leave free."""
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
                yield max(0, limit - taken + (_cache(folder)))
            if folder == base:
                break


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # no such limit; "max"


def _cache(folder: Path) -> int:
    """Bytes of the group's page cache that are given back when memory is short."""
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
