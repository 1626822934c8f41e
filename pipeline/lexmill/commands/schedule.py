"""`lexmill schedule`: the flow in a process of its own (only flows/ knows Prefect)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lexmill.errors import UserError

_ENDS: dict[int, int] = {signal.SIGINT: signal.SIGINT, signal.SIGTERM: signal.SIGTERM, signal.SIGHUP: signal.SIGTERM}


def schedule(cron: str, targets: Sequence[str], jobs: int) -> int:
    """Serve the flow until Ctrl-C; gives its exit code.

    Raises:
        UserError: this is not the project's folder.
    """
    if not Path("flows/pipeline.py").is_file():
        raise UserError("there is no flows/pipeline.py here; run this in the project's folder")
    command = [sys.executable, "-m", "flows.pipeline", "serve", "--cron", cron, "--jobs", str(jobs), *targets]
    # In a session of its own, so that a signal reaches the child once, through us, whoever sent it: the terminal's
    # Ctrl-C, `kill`, a service manager. It ends in good order and we give its code.
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
