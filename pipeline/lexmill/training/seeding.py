"""Random numbers as a function of where they are used, so that a resumed training needs no luck."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(seed: int, *place: int | str) -> int:
    """A 63-bit seed for a place (`"dropout", step, micro-batch, rank`); unrelated places get unrelated seeds."""
    text = "\0".join(str(part) for part in (seed, *place))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_all(seed: int) -> None:
    """Seed torch (all devices), numpy and Python; for initial weights."""
    import numpy
    import torch

    torch.manual_seed(seed)
    numpy.random.seed(seed % (1 << 32))
    random.seed(seed)


def seed_step(seed: int, device: torch.device) -> None:
    """Seed what a network draws from in a step: torch's generators of the CPU and of its device.

    `torch.manual_seed` would look through all kinds of devices at each step, which costs a millisecond.
    """
    import torch

    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
