"""The speed of a training: tokens and FLOPs per second, utilisation of the devices, memory.

Utilisation is model FLOPs (what the network needs, without recomputation) over the device's peak, as in PaLM
(Chowdhery et al. 2022, appendix B). A device that is not in the table has unknown utilisation.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lexmill.compute.execution import Execution
    from lexmill.params.recipe import Precision

Clock = Callable[[], float]
_WINDOW_SECONDS = 10.0

# TFLOP/s by the makers' data sheets, dense (half of the often quoted sparse ones), of float32 without TF32 and of bf16
# with float32 sums; None: no bf16 units. The first name found counts, so a longer name comes before its prefix. Names
# are as in CUDA and ROCm ("NVIDIA A100-SXM4-80GB", "Tesla T4").
_PEAKS: tuple[tuple[str, float, float | None], ...] = (
    ("gb200", 80.0, 2500.0),
    ("b200", 75.0, 2250.0),
    ("gh200", 67.0, 989.4),
    ("h200 nvl", 60.0, 835.5),
    ("h200", 67.0, 989.4),
    ("h100 nvl", 60.0, 835.5),
    ("h100 pcie", 51.0, 756.0),
    ("h100", 67.0, 989.4),  # SXM: "NVIDIA H100 80GB HBM3"
    ("a100", 19.5, 312.0),  # all of them, 40 and 80 GB
    ("a40", 37.4, 149.7),
    ("a30", 10.3, 165.0),
    ("a10", 31.2, 125.0),  # the A10G is another chip and not in this table
    ("l40s", 91.6, 362.0),
    ("l40", 90.5, 181.0),
    ("l4", 30.3, 121.0),
    ("rtx 6000 ada", 91.1, 364.2),
    ("rtx a6000", 38.7, 154.8),
    ("rtx 5090", 104.8, 209.5),
    ("rtx 4090", 82.6, 165.2),
    ("rtx 4080 super", 52.2, 104.4),
    ("rtx 4080", 48.7, 97.5),
    ("rtx 4070 ti", 40.1, 80.2),
    ("rtx 3090 ti", 40.0, 80.0),
    ("rtx 3090", 35.6, 71.2),
    ("rtx 3080 ti", 34.1, 68.2),
    ("rtx 3080", 29.8, 59.5),
    ("rtx 3070", 20.3, 40.6),
    ("v100s", 16.4, None),
    ("v100-sxm2", 15.7, None),
    ("v100-pcie", 14.0, None),
    ("p100-sxm2", 10.6, None),
    ("p100-pcie", 9.3, None),
    ("t4", 8.1, None),
    ("mi300x", 163.4, 1307.4),
    ("mi250x", 47.9, 383.0),
)


def peak_flops(device: str, precision: Precision) -> float | None:
    """Return the peak FLOP/s of one device by its name; None: unknown.

    Args:
        device: the name that torch gives, in any case. Another product of the same family (a laptop's chip, "A10G",
            "RTX 4090 D") is another device.
        precision: of the matrix products.
    """
    name = " ".join(device.lower().split())
    if re.search(r"laptop|max-q| mig ", name):
        return None
    for known, float32, bf16 in _PEAKS:
        if re.search(rf"(^|[^a-z0-9]){re.escape(known)}(?![a-z0-9]| (ti|super|d|nvl|pcie|mobile)\b)", name):
            rate = float32 if precision == "32-true" else bf16
            return None if rate is None else rate * 1e12
    return None


def peak_of(execution: Execution, precision: Precision) -> float | None:
    """Return the peak FLOP/s of all devices of a training together; None: unknown (as for a CPU)."""
    import torch

    if execution.accelerator != "cuda" or not torch.cuda.is_available():
        return None
    peak = peak_flops(torch.cuda.get_device_name(), precision)
    return None if peak is None else peak * execution.devices * execution.nodes


class Meter:
    """Tokens and FLOPs per second, over a recent window and over the run.

    The recent rate is that of the steps, without what is done `aside` (validation, checkpoints, samples). The rate of
    the whole run is by wall time. Cost: about a microsecond a step.

    Args:
        flops_per_token: of training one token; 0: unknown.
        peak: FLOP/s of all devices together; None: unknown.
        window: seconds of the recent rate.
        clock: seconds.
    """

    def __init__(
        self,
        flops_per_token: int = 0,
        peak: float | None = None,
        *,
        window: float = _WINDOW_SECONDS,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.flops_per_token, self.peak, self.clock, self._window = flops_per_token, peak, clock, window
        self.start()

    def start(self) -> None:
        """Start measuring: the first step begins now."""
        self.tokens, self._aside, self._begun = 0, 0.0, self.clock()
        self._seen: deque[tuple[float, int]] = deque([(0.0, 0)])  # (seconds in steps, tokens by then)

    def add(self, tokens: int) -> None:
        """Record the end of a step over so many tokens (of all devices)."""
        self.tokens += tokens
        now = self.clock() - self._begun - self._aside
        self._seen.append((now, self.tokens))
        while len(self._seen) > 2 and now - self._seen[1][0] >= self._window:
            self._seen.popleft()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Exclude what the context does from the steps' time."""
        begun = self.clock()
        try:
            yield
        finally:
            self._aside += self.clock() - begun

    @property
    def seconds(self) -> float:
        """Wall time since the start."""
        return self.clock() - self._begun

    def recent(self) -> float:
        """Return tokens per second in the steps of the window; 0 before the first step has ended."""
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def whole(self) -> float:
        """Return tokens per second of wall time since the start."""
        seconds = self.seconds
        return self.tokens / seconds if seconds > 0 else 0.0

    def flops(self, rate: float) -> float | None:
        """Return model FLOP/s at so many tokens per second; None: unknown."""
        return self.flops_per_token * rate if self.flops_per_token else None

    def utilisation(self, rate: float) -> float | None:
        """Return the share of the peak at so many tokens per second, 0 to 1; None: unknown."""
        flops = self.flops(rate)
        return None if flops is None or self.peak is None else flops / self.peak


def memory() -> dict[str, float]:
    """Return this process's peak memory so far, in GiB: `memory_gib`, on a GPU also `gpu_memory_gib`."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {"memory_gib": peak / (2**30 if sys.platform == "darwin" else 2**20)}  # bytes there, KiB elsewhere
    torch = sys.modules.get("torch")  # a training has loaded it
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        found["gpu_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return found
