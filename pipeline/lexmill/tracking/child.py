"""A process beside this one that talks to MLflow, which takes seconds to import and may hang: told by lines."""

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
    """A module run as a silent program; its first line is the request, since a command line would show a password."""

    def __init__(self, module: str, request: DataclassInstance, **how: Any) -> None:
        """Start it; `how` are further arguments of Popen. Raises `OSError` where there is no room for a process."""
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "encoding": "utf-8"}
        command = [sys.executable, "-m", module]
        self.process: subprocess.Popen[str] = subprocess.Popen(command, stdin=subprocess.PIPE, **silent, **how)
        self.tell(json.dumps(asdict(request)))

    def tell(self, line: str) -> None:
        """Send a line; one that has ended hears nothing more."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """Close its standard input: nobody waits for it any more."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self.close()
