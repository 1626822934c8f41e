"""Waiting for what another process does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], Any], what: str = "", alive: subprocess.Popen[Any] | None = None) -> Any:
    """Poll until something is true and return it; fail far beyond what a busy machine needs, or once `alive` ends."""
    deadline = time.monotonic() + 300
    while not (found := condition()):
        assert alive is None or alive.poll() is None, what or f"it ended before: {alive.communicate()}"
        assert time.monotonic() < deadline, what or "it did not happen"
        time.sleep(0.1)
    return found
