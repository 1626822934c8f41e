"""SIGTERM and Ctrl-C during a training: finish the step, save, then leave with the exit code of the signal.

Lightning's own answer to SIGTERM ends the process as if the training were done, and its answer to Ctrl-C is exit code
1; while a `Stopping` is open, both signals are ours.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from lexmill.base.errors import Interrupted, LexmillError, Terminated

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """Notes a stop signal; `error()` gives what to raise at the end of the step."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take both signals (again, if something else took them since). Only in the main thread: elsewhere nothing."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            before = signal.signal(number, self._note)
            self._before.setdefault(number, before)

    def restore(self) -> None:
        """Give both signals back to whom they belonged."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal == signal.SIGINT and number == signal.SIGINT:
            raise Interrupted("interrupted twice: stopped at once, the last checkpoint stands")
        self.signal = number

    @staticmethod
    def vote(number: int, world: int) -> float:
        """A signal as a number whose sum over all ranks tells which was sent: a SIGTERM weighs more than all Ctrl-C."""
        return {signal.SIGINT: 1.0, signal.SIGTERM: world + 1.0}.get(signal.Signals(number), 0.0) if number else 0.0

    @staticmethod
    def outcome(votes: float, world: int) -> int:
        """The signal that all ranks leave by; 0 when none was sent to any."""
        return int(signal.SIGTERM if votes > world else signal.SIGINT) if votes > 0 else 0

    def error(self, step: int, number: int) -> LexmillError:
        """The exception for a stop by signal `number` after `step` steps."""
        text = f"stopped after step {step}; the same command goes on from there"
        return Interrupted(text) if number == signal.SIGINT else Terminated(text)
