"""Kill what an orderly stop of a run left running."""

from __future__ import annotations

import os

import psutil

SUPERVISOR = "lexmill.runner.supervisor"


def kill_stages(process: int | None = None, *, commands: bool = False) -> int:
    """Kill what runs below each supervised command of a process (default this one); return the number killed.

    The commands (dvc) stay unless `commands`: dvc sees its stage end, writes its lock files and ends by itself. Their
    supervisors end with their commands.
    """
    killed = 0
    for command in _supervised(psutil.Process(os.getpid() if process is None else process)):
        for below in [*([command] if commands else []), *_below(command)]:
            try:
                below.kill()
            except psutil.NoSuchProcess:
                continue  # it has just ended
            killed += 1
    return killed


def _supervised(process: psutil.Process) -> list[psutil.Process]:
    """Return the commands under the supervisors that `process` started."""
    found: list[psutil.Process] = []
    for child in process.children():
        try:
            if SUPERVISOR in child.cmdline():
                found.extend(child.children())
        except psutil.NoSuchProcess:
            continue
    return found


def _below(command: psutil.Process) -> list[psutil.Process]:
    try:
        return list(command.children(recursive=True))
    except psutil.NoSuchProcess:
        return []
