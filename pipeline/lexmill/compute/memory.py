"""Memory of a process that computes."""

from __future__ import annotations

import ctypes
import sys


def keep_freed_memory() -> bool:
    """Make this process's allocator keep freed memory; return false if it cannot (not glibc).

    A training step frees and allocates the same large tensors, and so does a token that is generated: torch's kernel
    of an LSTM copies the weights in each call. glibc returns them to the system every time; paging them in again costs
    up to a tenth of a small model's training time on a CPU, and four fifths of an LSTM's generation. Memory once used
    stays taken.
    """
    if not sys.platform.startswith("linux"):
        return False
    trim_threshold, mmap_threshold = -1, -3  # of malloc.h
    try:
        library = ctypes.CDLL("libc.so.6")
        kept = library.mallopt(mmap_threshold, 1 << 30) and library.mallopt(trim_threshold, (1 << 31) - 1)
    except (OSError, AttributeError):
        return False
    return bool(kept)
