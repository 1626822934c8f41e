"""The decoder-only Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.models.gpt.shape import Shape

if TYPE_CHECKING:
    from lexmill.models.gpt.model import GPT


def build(config: Mapping[str, Any]) -> GPT:
    """A `GPT` with fresh weights from `shape` (the fields of `Shape`) and `vocab_size`."""
    from lexmill.models.gpt.model import GPT

    return GPT(Shape(**config["shape"]), int(config["vocab_size"]))
