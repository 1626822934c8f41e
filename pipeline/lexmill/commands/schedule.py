"""`lexmill schedule`: the flow in a process of its own (only flows/ knows Prefect)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lexmill.errors import UserError


def schedule(cron: str, targets: Sequence[str], jobs: int) -> int:
    """Serve the flow until Ctrl-C; gives its exit code.

    Raises:
        UserError: this is not the project's folder.
    """
    if not Path("flows/pipeline.py").is_file():
        raise UserError("there is no flows/pipeline.py here; run this in the project's folder")
    command = [sys.executable, "-m", "flows.pipeline", "serve", "--cron", cron, "--jobs", str(jobs), *targets]
    # Ctrl-C reaches the child through the terminal, SIGTERM through us; it ends in good order, we give its code.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(command, preexec_fn=_listen)  # noqa: PLW1509 (one thread, before exec)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def _listen() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
