"""The display of a run: a bar for each running stage, a line for each that ended. Thread-safe."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from lexmill.base.errors import EXIT_INTERRUPTED, EXIT_TERMINATED
from lexmill.base.progress import Bar, bar, say, seconds_text
from lexmill.runner.supervised import Outcome


class _Shown:
    """The open bar of a stage; a new description opens a new one."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._stack = ExitStack()
        self._description: str | None = None
        self._bar: Bar = self._stack.enter_context(bar(stage, None))

    def record(self, record: dict[str, Any]) -> None:
        if record["description"] != self._description:
            self._description = record["description"]
            name = self._stage.partition("@")[2] or self._stage
            label = str(self._description)
            title = label if name in label else f"{self._stage}: {label}"
            self._open(title, record["total"])
        self._bar.shown = {"": record["shown"]} if record["shown"] else {}
        self._bar.update(record["done"] - self._bar.done)
        if record["closed"]:
            self._description = None
            self._open(self._stage, None)

    def _open(self, title: str, total: float | None) -> None:
        self._stack.close()
        self._bar = self._stack.enter_context(bar(title, total))

    def close(self) -> None:
        self._stack.close()


class Display:
    """Shows the stages of one run on the terminal, or as plain lines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: dict[str, _Shown] = {}

    def started(self, stage: str) -> None:
        with self._lock:
            self._shown[stage] = _Shown(stage)

    def record(self, stage: str, record: dict[str, Any]) -> None:
        with self._lock:
            self._shown[stage].record(record)

    def said(self, stage: str, text: str) -> None:
        with self._lock:
            say(f"  {stage}: {text}")

    def note(self, text: str) -> None:
        with self._lock:
            say(text)

    def ended(self, outcome: Outcome) -> None:
        with self._lock:
            self._shown.pop(outcome.stage).close()
            say(outcome_text(outcome))


def outcome_text(outcome: Outcome) -> str:
    """Format as `train@gpt: done in 41.0 s`, or what went wrong, indented."""
    took = seconds_text(outcome.seconds)
    signals = {EXIT_INTERRUPTED: "interrupted", EXIT_TERMINATED: "terminated"}
    failed = signals.get(outcome.code, f"failed with exit code {outcome.code}")
    said = {
        "ran": f"done in {took}",
        "restored": f"restored from the cache in {took}",
        "unchanged": f"unchanged ({took})",
        "stopped": f"stopped after {took}",
        "failed": f"{failed} after {took}",
    }[outcome.state]
    message = "" if outcome.message in signals.values() else outcome.message
    lines = [f"{outcome.stage}: {said}", *(f"  {line}" for line in message.split("\n") if message)]
    return "\n".join(lines)
