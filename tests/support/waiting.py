"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], Any], what: str = "") -> Any:
    """Poll until something is true, and give it; far beyond what a busy machine needs it is a failure."""
    deadline = time.monotonic() + 150
    while not (found := condition()):
        assert time.monotonic() < deadline, what or "it did not happen"
        time.sleep(0.1)
    return found
