"""Cost against length: what a training step and generation cost after 256, 1k, 4k and 16k tokens.

A child process measures (`python -m lexmill.commands.compare.measuring`) and prints one JSON object a length, so that
what it measured before memory ran out is kept. Weights do not matter, so a new network is measured: all its layers, one
sequence.
Cost: some seconds to a minute a model, quadratic in the longest length for attention; memory of one sequence.

Shape letters: B batch, T time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.cutting import cut
from lexmill.base.errors import LexmillError
from lexmill.base.progress import bar
from lexmill.commands.compare.subjects import Subject
from lexmill.commands.plan.planning import vocabulary
from lexmill.commands.precision import processor_name

if TYPE_CHECKING:
    import torch

LENGTHS = (256, 1024, 4096, 16384)
_PREFILL = 64  # tokens read at once before generation is timed; caches grow by doubling
_WRITTEN = 16  # tokens generated at each length
_LEAST_SECONDS = 0.3  # of repeated steps
_MOST_REPEATS = 20


def costs(subject: Subject, root: Path) -> dict[str, Any]:
    """Return the machine and the cost at each length: {"machine": {...}, "lengths": {"256": {...}}}.

    A length has seconds_per_token (of a training step), generation_tokens_per_second and cache_bytes, or `reason` where
    it is not possible.

    Raises:
        LexmillError: the child failed by a bug.
    """
    choices = subject.parsed()
    model = choices.models[subject.name]
    config = {"family": model.family, "shape": asdict(model.shape), "vocab_size": vocabulary(choices, model)}
    found: dict[str, Any] = {"machine": {}, "lengths": {}}
    command = [sys.executable, "-m", "lexmill.commands.compare.measuring", json.dumps(config)]
    with (
        bar(f"{subject.preset}: cost against length", len(LENGTHS)) as shown,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8") as child,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            data = json.loads(line)
            if "machine" in data:
                found["machine"] = data["machine"]
            else:
                found["lengths"][str(data.pop("length"))] = data
                shown.update(1)
        child.wait()
        errors.seek(0)
        said = errors.read()
    if child.returncode > 0:
        raise LexmillError(f"the cost of {subject.preset} could not be measured: {said.strip()}")
    for length in LENGTHS:  # killed: the machine ran out of memory
        found["lengths"].setdefault(str(length), {"reason": "out of memory"})
    return found


def machine(device: str, threads: int) -> dict[str, Any]:
    """Return what the measurements depend on: processor or GPU, threads, version of torch."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else processor_name()
    return {"device": device, "name": name, "threads": threads, "torch": torch.__version__}


def measure(module: Any, length: int, device: torch.device) -> dict[str, Any]:
    """Return the cost at one length, or the `reason` why the network cannot read it.

    Raises:
        torch.OutOfMemoryError: the device's memory is too small.
    """
    if module.positions is not None and length > module.context:
        return {"reason": f"its positions are learned for {module.context} tokens"}
    try:
        written, size = _generation(module, length, device)
        return {
            "seconds_per_token": _training(module, length, device) / length,
            "generation_tokens_per_second": 1 / written,
            "cache_bytes": size,
        }
    except ValueError as error:
        return {"reason": cut(str(error).split("\n")[0], 120, "…")}


def cache_bytes(cache: Any) -> int:
    """Return the bytes of all tensors that a cache holds, as allocated, each storage once."""
    import torch

    seen: dict[int, int] = {}
    waiting, known = [cache], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif hasattr(one, "__dict__") and id(one) not in known:
            known.add(id(one))
            waiting += vars(one).values()
    return sum(seen.values())


def _generation(module: Any, length: int, device: torch.device) -> tuple[float, int]:
    """Return the seconds of one greedy token up to `length` tokens, and the bytes of the cache by then."""
    import torch

    module.eval()
    with torch.inference_mode():
        cache = module.new_cache(1)
        for tokens in _tokens(module, length - _WRITTEN, device).split(_PREFILL, dim=1):
            logits = module.next_logits(tokens, cache)  # (1, V)
        times = []
        for _ in range(_WRITTEN):
            begun = _now(device)
            logits = module.next_logits(logits.argmax(-1, keepdim=True), cache)
            times.append(_now(device) - begun)
    return min(times), cache_bytes(cache)


def _training(module: Any, length: int, device: torch.device) -> float:
    """Return the seconds of a forward and backward pass over one window of `length` tokens, without the update."""
    module.train()
    tokens = _tokens(module, length + 1, device)

    def step() -> None:
        module.zero_grad(set_to_none=True)
        module.loss(tokens[:, :-1], tokens[:, 1:]).backward()

    return _best(step, device)


def _best(step: Callable[[], None], device: torch.device) -> float:
    """Return the least seconds of repeated calls, which other work of the machine distorts least."""
    times: list[float] = []
    while len(times) < 2 or (sum(times) < _LEAST_SECONDS and len(times) < _MOST_REPEATS):
        begun = _now(device)
        step()
        times.append(_now(device) - begun)
        if times[0] > 10 * _LEAST_SECONDS:
            break
    return min(times)


def _now(device: torch.device) -> float:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _tokens(module: Any, length: int, device: torch.device) -> torch.Tensor:
    """Return random tokens, (1, T)."""
    import torch

    return torch.randint(module.vocab_size, (1, length), generator=torch.Generator().manual_seed(length)).to(device)


def _measured(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    import torch

    from lexmill.compute.execution import load_execution
    from lexmill.compute.memory import keep_freed_memory
    from lexmill.evaluation.device import evaluation_device
    from lexmill.models import build

    keep_freed_memory()  # as training and a loaded model do
    device = evaluation_device(load_execution())
    yield {"machine": machine(device.type, torch.get_num_threads())}
    torch.manual_seed(0)
    module = build(config).to(device)
    for length in LENGTHS:
        try:
            found = measure(module, length, device)
        except torch.OutOfMemoryError:
            found = {"reason": "out of memory"}
        yield {"length": length, **found}


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
        os.dup2(2, 1)  # what a library prints is no result
        for one in _measured(json.loads(sys.argv[1])):
            stream.write(json.dumps(one) + "\n")
            stream.flush()
