"""Advise on bf16 for `lexmill check`: whether this machine has instructions for it, and how fast they are.

Precision is part of a model's identity, so no machine chooses it; the user learns what their choice costs here.
"""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.base.workspace import HOME
from lexmill.corpora.fetching.downloads import user_cache, writable
from lexmill.params import Params
from lexmill.params.recipe import Steps

if TYPE_CHECKING:
    from collections.abc import Mapping

# As /proc/cpuinfo names them: Intel's and AMD's tiles and vectors, ARM's.
_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "svebf16")
_ISA = ("DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")  # lower it
_SIZE = 1024
_TRIALS = 8
_WORTH = 1.1


def advice(choices: Params, device: str) -> list[str]:
    """Return sentences about the models' `precision` on a device (`cpu`, `cuda`, `mps`)."""
    recipes = {name: model.recipe for name, model in choices.models.items()}
    models = {name: recipe.precision for name, recipe in recipes.items() if isinstance(recipe, Steps)}
    if not models:
        return []
    found = instructions(device)
    measured = None if device == "cpu" and found == [] else kept_rates(device)
    return sentences(models, found, measured)


def sentences(models: Mapping[str, str], found: list[str] | None, measured: tuple[float, float] | None) -> list[str]:
    """Return the advice on these models' precisions.

    Args:
        models: name -> precision.
        found: the instructions for bf16 (`instructions`).
        measured: FLOP/s of float32 and of bf16 (`rates`); None: bf16 without instructions needs no measuring.
    """
    full = ", ".join(name for name, precision in models.items() if precision == "32-true")
    mixed = ", ".join(name for name, precision in models.items() if precision != "32-true")
    if found == [] or measured is None:
        none = "this machine has no bf16 instructions; 32-true is right for it"
        slow = f"{mixed}: `recipe.precision: bf16-mixed` is slow here; 32-true would train faster"
        return [none, slow] if mixed else [none]
    float32, bf16 = measured
    metrics = f"{float32 / 1e9:,.0f} GFLOP/s in float32, {bf16 / 1e9:,.0f} in bf16"
    if bf16 < _WORTH * float32:
        return [f"bf16 matrix products are no faster here ({metrics}); 32-true is right for this machine"]
    by = f" ({', '.join(found)})" if found else ""
    better = f"bf16 is recommended here{by}: matrix products make {metrics}, {bf16 / float32:.1f} times as much"
    faster = f"{full}: `recipe.precision: bf16-mixed` would train faster, with other last digits in its metrics"
    return [better, f"{faster} (precision is part of a model's identity)"] if full else [better]


def instructions(device: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str] | None:
    """Return the device's instructions for bf16; None where they cannot be found out."""
    if device == "cuda":
        import torch

        return ["tensor cores"] if torch.cuda.is_bf16_supported(including_emulation=False) else []
    if device != "cpu":
        return None
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    named = [line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))]
    return [name for name in _INSTRUCTIONS if name in named[0]] if named else None


def kept_rates(device: str, workspace: Path = Path()) -> tuple[float, float]:
    """Return `rates`, measured once for each kind of processor and version of torch and kept in the user's cache.

    Of a GPU they are measured each time.
    """
    if device != "cpu":
        return rates(device)
    folder = user_cache() / "lexmill"
    path = (folder if writable(folder) else workspace / HOME) / "matrix-rates.json"
    key = storage.fingerprint([_processor(), version("torch"), *(os.environ.get(name, "") for name in _ISA)])[:32]
    try:
        kept = storage.read_json(path)
        float32, bf16 = map(float, kept[key])
    except (OSError, ValueError, KeyError, TypeError):
        float32, bf16 = rates(device)
        storage.write_json(path, {key: [float32, bf16]})
    return float32, bf16


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return what the system says of the processor's kind."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def processor_name() -> str:
    """Return the processor's name, as people know it."""
    lines = _processor().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def rates(device: str) -> tuple[float, float]:
    """Return the FLOP/s of a matrix product in float32 and in bf16, on a CPU of one thread.

    The best of several, in turns; on a CPU by processor time, which a busy machine does not distort.

    Raises:
        UserError: the device does not work.
    """
    import torch

    clock = time.thread_time if device == "cpu" else time.perf_counter
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    try:
        matrices = {dtype: torch.randn(_SIZE, _SIZE, device=device).to(dtype) for dtype in best}
        for _ in range(_TRIALS):
            for dtype, a in matrices.items():
                start = clock()
                float((a @ a)[0].sum())  # the sum is read, so the device has finished
                best[dtype] = min(best[dtype], clock() - start)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"accelerator: '{device}' does not work here: {error}", "conf/execution") from None
    finally:
        torch.set_num_threads(threads)
    flops = 2.0 * _SIZE**3
    return flops / best[torch.float32], flops / best[torch.bfloat16]
