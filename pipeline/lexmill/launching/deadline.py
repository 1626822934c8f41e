"""The longest that a stage may run: over it, it is ended in order, and what stays is ended with its tree.

A stage that ran out of time ends as worth another try (75): a training goes on from its checkpoint, and what hung may
not hang again.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lexmill.errors import EXIT_RETRY, RetryableError, Terminated
from lexmill.launching.settings import Duration

GRACE_SECONDS = 30.0


def sentence(seconds: float) -> str:
    """What is told of a stage that ran out of time."""
    return (
        f"it ran longer than its time ({Duration(seconds)}) and was ended; run again and it goes on, or raise `time`"
        " of this stage in conf/execution/"
    )


@contextmanager
def deadline(seconds: float, record: Callable[[int, str], None]) -> Iterator[None]:
    """End this process after `seconds` (0: never): by SIGTERM to itself; half a minute later, with all below it.

    Args:
        seconds: how long the block may take.
        record: is told the exit code and the sentence before the process is ended by force.

    Raises:
        RetryableError: the time was up and the block ended in order.
    """
    if not seconds:
        yield
        return
    over, done = threading.Event(), threading.Event()

    def watch() -> None:
        if done.wait(seconds):
            return
        over.set()
        os.kill(os.getpid(), signal.SIGTERM)
        if done.wait(GRACE_SECONDS):
            return
        _kill_children()
        record(EXIT_RETRY, sentence(seconds))
        os._exit(EXIT_RETRY)

    threading.Thread(target=watch, name="deadline", daemon=True).start()
    try:
        yield
    except Terminated:
        if over.is_set():
            raise RetryableError(sentence(seconds)) from None
        raise
    finally:
        done.set()


def _kill_children() -> None:
    try:
        import psutil
    except ImportError:
        return  # a training machine without a runner: its ranks end by themselves
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
