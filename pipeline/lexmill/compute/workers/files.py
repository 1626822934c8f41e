"""Files on a folder that the stage and its workers see."""

from __future__ import annotations

import os
import secrets
import socket
import time
from pathlib import Path

from lexmill.base.errors import RetryableError

SEEN_SECONDS = 60.0
_POLL_SECONDS = 0.2


def own_name(piece: str) -> str:
    """Return a new file name for each try of a piece, so that a lost worker cannot interfere."""
    return f"{piece}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def cut_off(path: Path, size: int) -> RetryableError:
    """Return the error for a file of which a worker sees fewer than the `size` bytes that the stage saw."""
    return RetryableError(
        f"{path}: a worker on {socket.gethostname()} does not see the first {size:,} bytes of this file, as the stage"
        " does; is the folder on shared storage?"
    )


def await_file(path: Path, size: int) -> None:
    """Wait until a file of `size` bytes, closed by a worker, is seen here: a network folder may be late.

    Raises:
        RetryableError: it is missing, or has another size.
    """
    deadline = time.monotonic() + SEEN_SECONDS
    while True:
        seen = path.stat().st_size if path.exists() else -1
        if seen == size:
            return
        if time.monotonic() > deadline:
            what = "is not there" if seen < 0 else f"has {seen:,} bytes"
            raise RetryableError(
                f"{path}: a worker has written {size:,} bytes, but {SEEN_SECONDS:.0f} seconds later the file {what}"
                " here; is the folder on shared storage?"
            )
        time.sleep(_POLL_SECONDS)
