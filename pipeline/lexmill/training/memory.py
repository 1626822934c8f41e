"""Keeps freed memory for the next step.

A step frees and allocates the same large tensors as the step before. glibc gives each back to the system at once and
asks for it again, and the page faults cost up to a tenth of a small model's training time on a CPU. The price is that
memory once used stays taken until the process ends.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def keep_freed_memory() -> bool:
    """Ask the allocator of this process to keep what is freed; false where it cannot be asked (not glibc)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL("libc.so.6")
        kept = library.mallopt(_MMAP_THRESHOLD, 1 << 30) and library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
    except (OSError, AttributeError):
        return False
    return bool(kept)
