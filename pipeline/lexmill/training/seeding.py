"""Seeds as a function of where random numbers are used, so that a resumed training draws the same."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(seed: int, *place: int | str) -> int:
    """Return a 63-bit seed for a place (`"dropout", step, micro-batch, rank`); different places are unrelated."""
    text = "\0".join(str(part) for part in (seed, *place))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_all(seed: int) -> None:
    """Seed torch (all devices), numpy and Python, for initial weights."""
    import numpy
    import torch

    torch.manual_seed(seed)
    numpy.random.seed(seed % (1 << 32))
    random.seed(seed)


def seed_step(seed: int, device: torch.device) -> None:
    """Seed torch's generators of the CPU and the device, not all kinds of devices: that costs a millisecond a step."""
    import torch

    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
