"""What all benchmarks share: repetitions in turn, child processes, the machine, the table."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lexmill.base.storage import write_json
from lexmill.commands.precision import processor_name

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One quantity of both sides.

    Attributes:
        benchmark: the benchmark's name.
        what: what was measured, at which size.
        unit: of the values.
        ours, peer: the two sides by name, each with its values in the order taken.
    """

    benchmark: str
    what: str
    unit: str
    ours: tuple[str, list[float]]
    peer: tuple[str, list[float]]

    @property
    def ratio(self) -> float:
        """Our median over the peer's."""
        return statistics.median(self.ours[1]) / statistics.median(self.peer[1])

    def as_json(self) -> dict[str, Any]:
        """Names, values, medians and the ratio."""
        sides = {
            role: {"name": name, "values": values, "median": statistics.median(values)}
            for role, (name, values) in (("ours", self.ours), ("peer", self.peer))
        }
        return {"benchmark": self.benchmark, "what": self.what, "unit": self.unit, "ratio": self.ratio, **sides}


def in_turn(
    ours: Callable[[], Mapping[str, float]], peer: Callable[[], Mapping[str, float]], repetitions: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Measure A B A B ...: what the machine does beside hits both sides alike.

    Each call measures one side once and gives its quantities by name; they come back as lists, one entry a repetition.
    """
    found: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    for _ in range(repetitions):
        for side, values in zip((ours, peer), found, strict=True):
            for name, value in side().items():
                values.setdefault(name, []).append(value)
    return found


def child(module: str, *arguments: object) -> dict[str, Any]:
    """What `python -m benchmarks.MODULE ARGUMENTS` prints as JSON on its last line: one side, in a process of its own.

    Neither the memory that one side has taken nor the settings it made reach the other.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def matrix_rate(seconds: float = 0.5) -> float:
    """The best GFLOP/s of float32 matrix products on this process's threads: a cube of 1024, and a layer's shape."""
    import torch

    best, until = 0.0, time.perf_counter() + seconds
    sides = [(1024, 1024, 1024), (2048, 384, 1536)]
    factors = [(torch.randn(m, k), torch.randn(k, n)) for m, k, n in sides]
    while time.perf_counter() < until:
        for (m, k, n), (left, right) in zip(sides, factors, strict=True):
            start = time.perf_counter()
            torch.mm(left, right)
            best = max(best, 2e-9 * m * k * n / (time.perf_counter() - start))
    return best


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """What the metrics are true of: processor, cores, memory, versions, threads, and how busy it was at the start."""
    import psutil
    import torch

    return {
        "processor": processor_name(),
        "cores": cores(),
        "cores_in_machine": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": cores(),
        "load": round(os.getloadavg()[0], 2),
    }


def machine_text(found: Mapping[str, Any]) -> str:
    """The machine as a sentence."""
    return (
        f"{found['processor']}, {found['cores']} of {found['cores_in_machine']} cores, {found['memory_gib']} GiB,"
        f" {found['system']}, Python {found['python']}, torch {found['torch']}, {found['threads']} threads;"
        f" load {found['load']} at the start"
    )


def table(comparisons: list[Comparison]) -> str:
    """A Markdown table: medians with the least and the greatest value."""
    lines = ["| benchmark | what | ours | peer | ours / peer |", "|---|---|---|---|---|"]
    for one in comparisons:
        sides = [f"{name}: {_spread(values)} {one.unit}" for name, values in (one.ours, one.peer)]
        lines.append(f"| {one.benchmark} | {one.what} | {' | '.join(sides)} | {one.ratio:.2f} |")
    return "\n".join(lines)


def show(comparisons: list[Comparison], here: Mapping[str, Any], repetitions: int, path: Path | None) -> None:
    """Print the machine and the table, and write every value to `path`."""
    print(f"{machine_text(here)}\nMedian (least to greatest) of {repetitions}, the sides in turn.\n")
    print(table(comparisons))
    if path:
        write_json(path, {"machine": here, "comparisons": [one.as_json() for one in comparisons]})


def _spread(values: list[float]) -> str:
    return f"{_short(statistics.median(values))} ({_short(min(values))} to {_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
