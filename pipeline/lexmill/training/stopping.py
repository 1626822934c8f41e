"""SIGTERM and Ctrl-C during a training: finish the step, save, then exit with the signal's code.

By default SIGTERM ends a Python process in the middle of a step; between `install` and `restore` both signals are only
recorded.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from lexmill.base.errors import Interrupted, LexmillError, Terminated

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """Records a stop signal; raise `error()` at the end of the step."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Handle both signals from now on; do nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal == signal.SIGINT and number == signal.SIGINT:
            raise Interrupted("interrupted twice: stopped at once; the last checkpoint remains")
        self.signal = number

    @staticmethod
    def vote(number: int, world: int) -> float:
        """Return a number for the signal whose sum over ranks shows which was sent: SIGTERM outweighs all Ctrl-C."""
        return {signal.SIGINT: 1.0, signal.SIGTERM: world + 1.0}.get(signal.Signals(number), 0.0) if number else 0.0

    @staticmethod
    def outcome(votes: float, world: int) -> int:
        """Return the signal by which all ranks stop; 0: none was sent."""
        return int(signal.SIGTERM if votes > world else signal.SIGINT) if votes > 0 else 0

    def error(self, step: int, number: int) -> LexmillError:
        """Return the exception for a stop by signal `number` after `step` steps."""
        text = f"stopped after step {step}; the same command resumes from there"
        return Interrupted(text) if number == signal.SIGINT else Terminated(text)
