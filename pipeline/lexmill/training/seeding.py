"""Random numbers as a function of where they are used, so that a resumed training needs no luck."""

from __future__ import annotations

import hashlib
import random


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
