"""The hard end of a run's stages, for one that must be over soon: what an orderly end left running is killed."""

from __future__ import annotations

import os

import psutil

SUPERVISOR = "lexmill.runner.supervisor"


def kill_stages(process: int | None = None, *, commands: bool = False) -> int:
    """Kill what runs below each supervised command of a process; gives how many processes that were.

    The commands themselves (dvc) stay: dvc sees its stage end, puts its lock files in order and ends by itself. Their
    supervisors stay in any case, and end when their command has.

    Args:
        process: whose stages; default this process.
        commands: kill the commands too.
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
    """The commands under the supervisors that `process` started."""
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
