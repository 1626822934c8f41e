"""Commands under test: Python with arguments, in a workspace, in an environment of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_for


class Started(subprocess.Popen[str]):
    """A command whose output is kept; a test that fails does not wait for its end but makes it."""

    def __init__(self, *command: str, root: Path, environment: Mapping[str, str], **how: Any) -> None:
        """Start it in a process group of its own; `how` are further arguments of Popen."""
        usual = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        super().__init__(
            [sys.executable, *command], cwd=root, env=environment, text=True, start_new_session=True, **usual | how
        )

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and self.poll() is None:
            self.terminate()
            try:
                self.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                self.kill()
        super().__exit__(kind, error, trace)


@contextmanager
def pages(root: Path, environment: Mapping[str, str], log: Path) -> Iterator[tuple[Started, str]]:
    """Run `lexmill ui` for the block; gives it and what it said of its pages."""
    with open(log, "w") as stream:
        served = Started("-m", "lexmill.cli", "ui", root=root, environment=environment, stdout=stream)
    try:
        wait_for(lambda: "Ctrl-C" in log.read_text() or served.poll() is not None)
        assert served.poll() is None, log.read_text()
        yield served, log.read_text()
    finally:
        if served.poll() is None:
            served.send_signal(signal.SIGINT)
            served.wait(timeout=60)
