"""The cores of this process, and torch's threads on them.

A container may be allowed less CPU time than all the cores it sees: its cgroup has a quota. More threads than the quota
pays for are all stopped for a part of every period.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from lexmill.compute.execution import Execution

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def visible_cores() -> list[int]:
    """Return the numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cores() -> int:
    """Return the number of cores this process may use, at most those that its cgroup's quota pays for, rounded up."""
    quota = cpu_quota(_GROUPS, _OWN_GROUP)
    seen = len(visible_cores())
    return seen if quota is None else max(1, min(seen, math.ceil(quota)))


def cpu_quota(groups: Path, own: Path) -> float | None:
    """Return the cores' worth of CPU time that the process's cgroups allow it, the least of all; None if any amount.

    Args:
        groups: the folder of the cgroup file systems, version 2 or 1.
        own: the file that names the process's groups, `HIERARCHY:CONTROLLERS:PATH` a line.
    """
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None  # not Linux
    found: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = groups / "cpu" if controllers else groups
        # In a container the file may give the host's path, and the container's own group is at the root.
        parts = Path(path.lstrip("/")).parts
        places = [folder.joinpath(*parts[:count]) for count in range(len(parts) + 1)]
        found += [limit for place in places if (limit := _limit(place, version=1 if controllers else 2)) is not None]
    return min(found, default=None)


def _limit(group: Path, version: int) -> float | None:
    """Return the quota of one group; None where it has none (`max`, -1)."""
    try:
        if version == 2:
            quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def set_torch_threads(execution: Execution) -> int:
    """Set and return the threads of a single process: those of the settings, else torch's choice up to `cores()`."""
    import torch

    threads = execution.threads or min(torch.get_num_threads(), cores())
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    return threads
