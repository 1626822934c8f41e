"""Whether a server answers."""

from __future__ import annotations

import urllib.error
import urllib.request


def answers(address: str) -> bool:
    """Return whether a GET of the address gives 200 within a second."""
    try:
        with urllib.request.urlopen(address, timeout=1) as reply:
            return bool(reply.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False
