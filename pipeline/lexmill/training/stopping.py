"""SIGTERM and Ctrl-C during a training: finish the step, save, then leave with the exit code of the signal.

Python's own answer to SIGTERM ends the process at once, in the middle of a step; between `install` and `restore` both
signals are only noted.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from lexmill.base.errors import Interrupted, LexmillError, Terminated

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """Notes a stop signal; `error()` is what to raise at the end of the step."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Handle both signals from now on. Does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)

    def restore(self) -> None:
        """Restore the handlers from before."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal == signal.SIGINT and number == signal.SIGINT:
            raise Interrupted("interrupted twice: stopped at once, the last checkpoint stands")
        self.signal = number

    @staticmethod
    def vote(number: int, world: int) -> float:
        """A signal as a number whose sum over all ranks shows which was sent: a SIGTERM outweighs all Ctrl-C."""
        return {signal.SIGINT: 1.0, signal.SIGTERM: world + 1.0}.get(signal.Signals(number), 0.0) if number else 0.0

    @staticmethod
    def outcome(votes: float, world: int) -> int:
        """The signal that all ranks leave by; 0 when none was sent to any."""
        return int(signal.SIGTERM if votes > world else signal.SIGINT) if votes > 0 else 0

    def error(self, step: int, number: int) -> LexmillError:
        """The exception for a stop by signal `number` after `step` steps."""
        text = f"stopped after step {step}; the same command goes on from there"
        return Interrupted(text) if number == signal.SIGINT else Terminated(text)
