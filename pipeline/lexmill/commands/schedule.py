"""`lexmill schedule`: run the flow in a process of its own (only flows/ uses Prefect)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from lexmill.base.errors import UserError

_ENDS: dict[int, int] = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}
_LONGEST = 366 * 86400  # of an interval
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NAMES = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d"}


@dataclass(frozen=True)
class Timetable:
    """When the flow runs: a cron expression in a time zone, or an interval in seconds from start to start."""

    cron: str | None
    interval: float | None
    timezone: str

    @classmethod
    def parse(cls, cron: str | None, interval: str | None, timezone: str) -> Timetable:
        """Read the options of the command line.

        Raises:
            UserError: none or both of `cron` and `interval`, a wrong interval, an unknown time zone.
        """
        if (cron is None) == (interval is None):
            raise UserError("""say when: either --cron "0 2 * * *" or --interval '6 h'""")
        if cron is not None and len(cron.split()) not in (1, 5):
            raise UserError(f"--cron '{cron}': five fields are needed: minute, hour, day, month, day of the week")
        return cls(cron, None if interval is None else seconds_of(interval), _checked_zone(timezone))

    @property
    def words(self) -> str:
        """Return the timetable as text."""
        return f"'{self.cron}' ({self.timezone})" if self.cron is not None else f"every {self.interval:g} seconds"


def seconds_of(interval: str) -> float:
    """Return `90`, `90 s`, `15 min`, `6 h` or `1.5 days` in seconds.

    Raises:
        UserError: it is none of these, or 0.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", interval.strip().lower())
    unit = found[2].removesuffix("s") or "s" if found else ""
    unit = _NAMES.get(unit, unit)
    if found is None or unit not in _UNITS or not float(found[1]):
        raise UserError(f"--interval '{interval}': give seconds, or a number with s, min, h or d, such as '6 h'")
    seconds = float(found[1]) * _UNITS[unit]
    if seconds > _LONGEST:
        raise UserError(f"--interval '{interval}': at most {_LONGEST // 86400} days")
    return seconds


def _checked_zone(name: str) -> str:
    from zoneinfo import available_timezones

    zones = available_timezones() | {"UTC"}
    if name not in zones:
        close = get_close_matches(name, zones, n=1) if len(name) < 100 else []
        hint = f"did you mean '{close[0]}'?" if close else "write it as in 'Europe/Berlin'"
        raise UserError(f"--timezone '{name}' is no time zone; {hint}")
    return name


def schedule(timetable: Timetable, options: Sequence[str]) -> int:
    """Serve the flow until Ctrl-C; return its exit code.

    Args:
        timetable: when it runs.
        options: further arguments of `python -m flows serve`.

    Raises:
        UserError: this is not the project's folder.
    """
    if not Path("flows/__main__.py").is_file():
        raise UserError("there is no folder flows/ here; run this in the project's folder")
    when = ["--cron", timetable.cron] if timetable.cron is not None else ["--interval", f"{timetable.interval:g}"]
    command = [sys.executable, "-m", "flows", "serve", *when, "--timezone", timetable.timezone, *options]
    # In its own session, so that a signal (Ctrl-C, `kill`, a service manager) reaches the child once, through us.
    process: subprocess.Popen[bytes] | None = None
    waiting: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        if process is None:
            waiting.append(number)
        else:
            process.send_signal(_ENDS[number])

    before = {number: signal.signal(number, pass_on) for number in _ENDS}
    try:
        process = subprocess.Popen(command, start_new_session=True)
        for number in waiting:
            process.send_signal(_ENDS[number])
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
