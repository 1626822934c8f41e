"""Progress on stderr: a bar on a terminal, else a line every ten seconds.

Under the runner (`LEXMILL_PROGRESS=records`) bars and messages become records, one JSON object a line after a mark, at
most four a second; the runner draws them. In a distributed training only rank 0 prints.
Cost: a call that shows nothing takes about a microsecond.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lexmill.base.ranks import is_first_process
from lexmill.base.shown import visible

RECORD_MARK = "\x1elexmill-progress "
_RECORD_SECONDS = 0.25
_LINE_SECONDS = 10.0


def seconds_text(seconds: float) -> str:
    """Format as 12.3 s, 4:05 or 1:02:03."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def shown_text(shown: dict[str, Any]) -> str:
    """Format as `loss 3.21, lr 0.0003`."""
    parts = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in shown.items())
    return visible(", ".join(part.lstrip() for part in parts))


def speak_utf8() -> None:
    """Write UTF-8 to standard output and error, whatever the locale."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")


def fill_standard_streams() -> None:
    """Open the null device for each closed standard stream, else the next opened file takes its number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (for as long as we live)


def _write(text: str) -> None:
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        return  # the reader is gone; the supervisor decides about the work


class Bar:
    """Progress of work of known or unknown length; this class shows nothing."""

    def __init__(self, description: str, total: float | None) -> None:
        self.description, self.total = visible(description), total
        self.done: float = 0
        self.shown: dict[str, Any] = {}

    def update(self, n: float = 1, **shown: Any) -> None:
        """Add `n` done; `shown` replaces the values shown beside the bar (`loss=3.2`)."""
        self.done += n
        if shown:
            self.shown = shown
        self._show()

    def _show(self) -> None:
        """Show the present state."""

    def close(self) -> None:
        """End the bar, after success or failure."""


class _RecordBar(Bar):
    """Records for the runner."""

    def __init__(self, description: str, total: float | None) -> None:
        super().__init__(description, total)
        self._next = 0.0
        self._show()

    def _record(self, closed: bool) -> None:
        record = {
            "description": self.description,
            "done": self.done,
            "total": self.total,
            "shown": shown_text(self.shown),
            "closed": closed,
        }
        _write(RECORD_MARK + json.dumps(record, ensure_ascii=True))

    def _show(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _RECORD_SECONDS
            self._record(closed=False)

    def close(self) -> None:
        self._record(closed=True)


class _LineBar(Bar):
    """Plain lines, the first after ten seconds; shorter work prints nothing."""

    def __init__(self, description: str, total: float | None) -> None:
        super().__init__(description, total)
        self._start = time.monotonic()
        self._next = self._start + _LINE_SECONDS
        self._last: tuple[float, str] | None = None  # shown by the last line

    def _line(self, now: float) -> None:
        self._last = (self.done, shown_text(self.shown))
        _write(line_text(self.description, self.done, self.total, shown_text(self.shown), now - self._start))

    def _show(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _LINE_SECONDS
            self._line(now)

    def close(self) -> None:
        if self._last not in (None, (self.done, shown_text(self.shown))):
            self._line(time.monotonic())


def line_text(description: str, done: float, total: float | None, shown: str, seconds: float) -> str:
    """Format as `pretrain gpt: 300/1000 (30%), loss 3.21, 41.0 s, 1:36 left`."""
    parts = [f"{done:,.0f}"]
    if total:
        parts = [f"{done:,.0f}/{total:,.0f} ({100 * done / total:.0f}%)"]
    if shown:
        parts.append(shown)
    parts.append(seconds_text(seconds))
    if total and 0 < done < total:
        parts.append(f"{seconds_text(seconds * (total - done) / done)} left")
    return f"{description}: {', '.join(parts)}"


class _Terminal:
    """The live area of the terminal, shared by all open bars."""

    def __init__(self) -> None:
        self._live: Any = None
        self._open = 0

    def open(self) -> Any:
        if self._live is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._live = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[shown]}", markup=False),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
                refresh_per_second=4,
            )
            self._live.start()
        self._open += 1
        return self._live

    def close(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, emoji=False, highlight=False)
        else:
            _write(text)


_terminal = _Terminal()


class _TerminalBar(Bar):
    """A bar on a terminal."""

    def __init__(self, description: str, total: float | None) -> None:
        super().__init__(description, total)
        self._live = _terminal.open()
        self._task = self._live.add_task(self.description, total=total, shown="")

    def _show(self) -> None:
        count = f"{self.done:,.0f}/{self.total:,.0f}" if self.total else f"{self.done:,.0f}" if self.done else ""
        parts = [part for part in (count, shown_text(self.shown)) if part]
        self._live.update(self._task, completed=self.done, shown=" ".join(parts))

    def close(self) -> None:
        self._live.remove_task(self._task)
        _terminal.close()


def _silent() -> bool:
    """Return whether another process of this training prints."""
    return not is_first_process()


def _kind() -> type[Bar]:
    if _silent():
        return Bar
    if os.environ.get("LEXMILL_PROGRESS") == "records":
        return _RecordBar
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        try:
            import rich.progress  # noqa: F401
        except ImportError:
            return _LineBar  # a training machine needs no rich
        return _TerminalBar
    return _LineBar


@contextmanager
def bar(description: str, total: float | None = None) -> Iterator[Bar]:
    """Show the progress of a block of work, `pretrain gpt`; `total` in steps, records, bytes ..., None if unknown."""
    shown = _kind()(description, total)
    try:
        yield shown
    finally:
        shown.close()


def say(text: str) -> None:
    """Print a line on stderr, above open bars, with control characters made visible."""
    if _silent():
        return
    text = visible(text)
    if os.environ.get("LEXMILL_PROGRESS") == "records":
        _write(RECORD_MARK + json.dumps({"say": text}))
    else:
        _terminal.say(text)
