"""The decoder-only Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexmill.models.gpt.model import GPT
from lexmill.params.shapes_tmp import GPTShape

__all__ = ["GPT", "build"]


def build(config: Mapping[str, Any]) -> GPT:
    """A `GPT` with fresh weights from `shape` (the fields of `GPTShape`) and `vocab_size`."""
    return GPT(GPTShape(**config["shape"]), int(config["vocab_size"]))
