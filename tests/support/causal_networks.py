"""Every causal family in small: its `tiny` sizes, each of its variants, and each row of linear attention alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from lexmill import models
from lexmill.models.common.rows import ROWS


def _sizes() -> dict[str, tuple[str, Mapping[str, Any]]]:
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name in models.families("causal"):
        tiny, variants = models.family(name).tiny, models.family(name).variants
        if name == "linear_attention":  # its variants are pairs of rows
            found |= {row: (name, {**tiny, "mixers": (row,)}) for row in ROWS}
        else:
            found |= {name + (f"+{i}" if i else ""): (name, {**tiny, **one}) for i, one in enumerate(({}, *variants))}
    return found


SIZES = _sizes()
"""Family and shape by name: gpt, decoder+2 for the second variant of decoder, gla for that row."""


def network(name: str, vocab_size: int, **changes: Any) -> Any:
    """A fresh network; fields of its shape may be changed."""
    torch.manual_seed(0)
    family, sizes = SIZES[name]
    shape = asdict(models.family(family).shape(**{**sizes, **changes}))
    return models.build({"family": family, "shape": shape, "vocab_size": vocab_size})
