"""A process beside this one that talks to MLflow: it hears what to do in lines on its standard input.

A process and not a thread: MLflow takes seconds to import, and a server may hang. When its input closes, nobody waits
for it any more.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Child:
    """A module run as a program, silent; its first line is the request: on a command line a password would be seen."""

    def __init__(
        self,
        module: str,
        request: DataclassInstance,
        *,
        environment: Mapping[str, str] | None = None,
        new_session: bool = False,
    ) -> None:
        """Start it; raises `OSError` where the machine has no room for a process."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            env=environment,
            start_new_session=new_session,
        )
        self.tell(json.dumps(asdict(request)))

    def tell(self, line: str) -> None:
        """Send a line; one that has ended hears nothing more."""
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
