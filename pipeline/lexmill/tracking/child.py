"""A child process for MLflow, which takes seconds to import and may hang; it reads lines from its input."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Child:
    """A module run silently; its first input line is the request, since a command line would show a password."""

    def __init__(self, module: str, request: DataclassInstance, **how: Any) -> None:
        """Start it with further arguments `how` of Popen; raise `OSError` where no process can start."""
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "encoding": "utf-8"}
        command = [sys.executable, "-m", module]
        self.process: subprocess.Popen[str] = subprocess.Popen(command, stdin=subprocess.PIPE, **silent, **how)
        self.tell(json.dumps(asdict(request)))

    def tell(self, line: str) -> None:
        """Send a line; ignore that the process has ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """Close its standard input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self.close()
