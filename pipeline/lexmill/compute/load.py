"""Whether other programs hold the cores that a training or a prediction is about to use.

Torch's threads wait for the slowest of them in each operation, so one that shares its core with another program slows
all of them, often many times. A hint names what is busy and a number of threads that leaves cores to it.

Two signs must agree: the load average says that it lasts, a sample says that it is happening now and is not our own.
Cost: nothing on an idle machine; else a sample of 40 ms and two looks at the processes, 30 microseconds each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lexmill.base.shells import SHELLS
from lexmill.base.shown import visible
from lexmill.compute.cores import visible_cores

_SAMPLE_SECONDS = 0.04
_LEAST_CORES = 0.75
_LEAST_SHARE = 0.25
_NAMED = 3
# The programs that start a stage or a command; the shells between them were given the command with -c.
_OURS = ("python", "lexmill", "dvc", "prefect", "torchrun")


@dataclass(frozen=True)
class Process:
    """A process at one moment; `seconds` of CPU time so far."""

    name: str
    parent: int
    seconds: float


@dataclass(frozen=True)
class Sample:
    """The machine at one moment: the CPU time that the cores have worked so far, and the processes by their number."""

    busy: float
    processes: Mapping[int, Process]


@dataclass(frozen=True)
class Others:
    """What other programs use.

    Attributes:
        busy: cores' worth of CPU time, of `seen` cores.
        programs: name and cores, the busiest first; none where they are outside of this container.
    """

    busy: float
    seen: int
    programs: tuple[tuple[str, float], ...] = ()


def hint(threads: int, settings: Path) -> str:
    """Return a line that advises fewer threads, "" where other programs leave enough cores.

    Args:
        threads: of the work that is about to start, in all its processes.
        settings: the file of the execution settings.
    """
    others = measured()
    if others is None:
        return ""
    free = max(1, others.seen - round(others.busy))
    if others.busy < _least(others.seen) or threads <= free:
        return ""
    named = ", ".join(f"{visible(name)} {cores:.1f}" for name, cores in others.programs[:_NAMED])
    return (
        f"other programs keep {min(others.busy, others.seen):.1f} of {others.seen} cores busy{named and f' ({named})'},"
        f" which can make this many times slower; `threads: {free}` in {settings} leaves them their cores"
    )


def measured() -> Others | None:
    """Return what other programs use now; None where the load average is low or the system does not tell."""
    seen = visible_cores()
    try:
        if os.getloadavg()[0] < _least(len(seen)):
            return None
        begun, before = time.monotonic(), _sample(seen)
        time.sleep(_SAMPLE_SECONDS)
        after, seconds = _sample(seen), time.monotonic() - begun
    except (OSError, ValueError, IndexError):
        return None
    return compared(before, after, seconds, len(seen), our_processes(after.processes, os.getpid(), _runs_a_command))


def _least(seen: int) -> float:
    return max(_LEAST_CORES, _LEAST_SHARE * seen)


def compared(before: Sample, after: Sample, seconds: float, seen: int, own: set[int]) -> Others:
    """Return what processes other than `own` used between two samples of `seen` cores."""
    used = {
        number: process.seconds - before.processes[number].seconds
        for number, process in after.processes.items()
        if number in before.processes
    }
    by_name: dict[str, float] = {}
    for number, cpu in used.items():
        if cpu > 0 and number not in own:
            name = after.processes[number].name
            by_name[name] = by_name.get(name, 0.0) + cpu / seconds
    ours = sum(used.get(number, 0.0) for number in own)
    busy = max(0.0, after.busy - before.busy - ours) / seconds
    return Others(busy, seen, tuple(sorted(by_name.items(), key=lambda one: (-one[1], one[0]))))


def our_processes(processes: Mapping[int, Process], me: int, runs_a_command: Callable[[int], bool]) -> set[int]:
    """Return the process `me`, the commands that started it, and all that any of these started.

    Stages side by side are ours; what else was started in the terminal of the command is not.

    Args:
        runs_a_command: whether a shell, given by its number, was started for one command.
    """
    top = me
    while top in processes and (above := processes[top].parent) in processes:
        name = processes[above].name
        if not name.startswith(_OURS) and not (name in SHELLS and runs_a_command(above)):
            break
        top = above
    own = more = {top}
    while more:
        more = {number for number, process in processes.items() if process.parent in more} - own
        own = own | more
    return own


def _runs_a_command(shell: int) -> bool:
    try:
        return b"-c" in Path(f"/proc/{shell}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _sample(cores: list[int]) -> Sample:
    """Return a sample of these cores; raise `OSError`, `ValueError` or `IndexError` where /proc is not Linux's."""
    tick = os.sysconf("SC_CLK_TCK")
    rows = (line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines())
    wanted = {f"cpu{core}" for core in cores}
    # user, nice, system; then irq and softirq, without idle and iowait
    busy = sum(sum(map(int, (*row[1:4], *row[6:8]))) for row in rows if row[0] in wanted)
    processes = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                line = Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has ended
            begun, _, rest = line.rpartition(")")
            words = rest.split()
            cpu = (int(words[11]) + int(words[12])) / tick
            processes[int(name)] = Process(begun.partition("(")[2], int(words[1]), cpu)
    return Sample(busy / tick, processes)
