"""The time limit of a stage: it is ended in order, then killed with its tree.

A stage out of time exits with 75 (try again): a training resumes from its checkpoint, and a hang may not recur. A
separate process keeps the time, since a stage that hangs in a library cannot:

    python -m lexmill.compute.deadline PID SECONDS STAGE        (in the workspace)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lexmill.base import workspace
from lexmill.base.errors import EXIT_RETRY, RetryableError, SignalledToEnd, Terminated
from lexmill.compute.settings import Duration

GRACE_SECONDS = 30.0
_POLL_SECONDS = 0.2


def sentence(seconds: float) -> str:
    """Return the message for a stage that ran out of time."""
    return (
        f"it ran longer than its time ({Duration(seconds)}) and was ended; run again to continue, or raise `time`"
        " of this stage in conf/execution/"
    )


@contextmanager
def deadline(seconds: float, stage: str) -> Iterator[None]:
    """Limit the block to `seconds` (0: no limit).

    Raises:
        RetryableError: the time was up and the block ended in order.
    """
    if not seconds:
        yield
        return
    begun = time.monotonic()
    keeper = subprocess.Popen(
        [sys.executable, "-m", "lexmill.compute.deadline", str(os.getpid()), str(seconds), stage],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is the stage's
    )
    try:
        yield
    except (Terminated, SignalledToEnd):
        if time.monotonic() - begun >= seconds:
            raise RetryableError(sentence(seconds)) from None
        raise
    finally:
        keeper.kill()
        keeper.wait()


def keep(pid: int, seconds: float, stage: str, grace: float = GRACE_SECONDS) -> None:
    """Wait `seconds`, then end the process, and after `grace` seconds kill its tree; return once it is gone."""
    import psutil

    try:
        process = psutil.Process(pid)
        if _gone_after(process, seconds):
            return
        process.send_signal(signal.SIGTERM)
        if _gone_after(process, grace):
            return
        below = [one for one in process.children(recursive=True) if one.pid != psutil.Process().pid]
        workspace.write_status(stage, EXIT_RETRY, sentence(seconds))
        for one in [process, *below]:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
    except psutil.NoSuchProcess:
        return  # it has just ended


def _gone_after(process: object, seconds: float) -> bool:
    """Wait until the process has ended, at most so long; return whether it has."""
    import psutil

    assert isinstance(process, psutil.Process)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(_POLL_SECONDS)
    return False


if __name__ == "__main__":
    keep(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
