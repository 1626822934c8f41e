"""What a process that computes does with freed memory."""

from __future__ import annotations

import platform

from lexmill.compute.memory import keep_freed_memory


def test_glibc_keeps_freed_memory() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
