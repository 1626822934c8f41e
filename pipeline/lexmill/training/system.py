"""The machine's load during a training: processors, memory, disk, GPUs, named as MLflow's system metrics.

GPUs are queried by an `nvidia-smi` process, if installed; the next sample takes its output, so nothing waits for it.
Without psutil (a bare training machine) there are only GPU metrics. Cost: some 0.3 ms a sample, and the start of a
process if there are GPUs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from typing import Any

_MEBI = 1 << 20
_QUERY = ("index", "uuid", "utilization.gpu", "memory.used", "memory.total", "power.draw")
_NAMES = {
    "utilization.gpu": "utilization_percentage",
    "memory.used": "memory_usage_megabytes",
    "power.draw": "power_usage_watts",
}


class System:
    """Samples this machine; percentages are since the previous sample."""

    def __init__(self) -> None:
        self._psutil: Any = None
        with suppress(ImportError):
            import psutil

            self._psutil = psutil
        self._process = self._psutil and self._psutil.Process()
        self._gpus = _Gpus()
        self._cpu()

    def sample(self) -> dict[str, float]:
        """Return metrics by name; unavailable ones are left out."""
        return {**self._cpu(), **self._gpus.newest()}

    def close(self) -> None:
        """End the GPU query, if one runs."""
        self._gpus.close()

    def _cpu(self) -> dict[str, float]:
        if self._psutil is None:
            return {}
        memory, disk = self._psutil.virtual_memory(), self._psutil.disk_usage(os.curdir)
        return {
            "cpu_utilization_percentage": self._psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / _MEBI,
            "system_memory_usage_percentage": memory.percent,
            "disk_usage_percentage": disk.percent,
            "disk_available_megabytes": disk.free / _MEBI,
            "process_cpu_utilization_percentage": self._process.cpu_percent(),
            "process_memory_usage_megabytes": self._process.memory_info().rss / _MEBI,
        }


class _Gpus:
    """The outputs of nvidia-smi: each query runs until the next sample."""

    def __init__(self) -> None:
        program = shutil.which("nvidia-smi")
        options = [f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
        self._command = None if program is None else [program, *options]
        self._asked: subprocess.Popen[str] | None = None
        self._ask()

    def newest(self) -> dict[str, float]:
        if self._asked is None or self._asked.poll() is None:
            return {}
        answer, _ = self._asked.communicate()
        if self._asked.returncode:
            self._command = None  # no driver: do not ask again
        self._ask()
        return gpu_metrics(answer, os.environ.get("CUDA_VISIBLE_DEVICES"))

    def _ask(self) -> None:
        self._asked = None
        if self._command is not None:
            quiet: Any = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self._asked = subprocess.Popen(self._command, stdout=subprocess.PIPE, encoding="utf-8", **quiet)

    def close(self) -> None:
        if self._asked is not None:
            self._asked.kill()
            self._asked.communicate()
            self._asked = None


def gpu_metrics(answer: str, visible: str | None) -> dict[str, float]:
    """Return nvidia-smi's output as metrics of each GPU that this process may use.

    Args:
        visible: CUDA_VISIBLE_DEVICES: indices or UUIDs (also shortened ones); None: all.
    """
    wanted = None if visible is None else [one.strip() for one in visible.split(",")]
    metrics: dict[str, float] = {}
    for line in answer.splitlines():
        cells = dict(zip(_QUERY, (cell.strip() for cell in line.split(",")), strict=False))
        if len(cells) != len(_QUERY):
            continue
        index, uuid = cells["index"], cells["uuid"]
        if wanted is not None and not any(one and (one == index or uuid.startswith(one)) for one in wanted):
            continue
        values = {key: _number(cells[key]) for key in (*_NAMES, "memory.total")}
        found = {name: values[key] for key, name in _NAMES.items()}
        used, total = values["memory.used"], values["memory.total"]
        found["memory_usage_percentage"] = 100 * used / total if used is not None and total else None
        metrics |= {f"gpu_{index}_{name}": value for name, value in found.items() if value is not None}
    return metrics


def _number(cell: str) -> float | None:
    """Return a cell's number; None for `[N/A]`, as of a MIG slice's utilisation."""
    try:
        return float(cell)
    except ValueError:
        return None
