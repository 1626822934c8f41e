"""Whether a server is there: asked by those who start it, and by those who look for what was left running."""

from __future__ import annotations

import urllib.error
import urllib.request


def answers(address: str) -> bool:
    """Whether a GET gives 200 within a second."""
    try:
        with urllib.request.urlopen(address, timeout=1) as reply:
            return bool(reply.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False
