"""Which of the processes of one training this is."""

from __future__ import annotations

import os

_RANKS = ("LOCAL_RANK", "NODE_RANK", "RANK")  # as torchrun, Slurm's script and Fabric set them


def is_first_process() -> bool:
    """Return whether this is the first process of its training, or the only one."""
    return all(int(os.environ.get(name) or 0) == 0 for name in _RANKS)
