"""The modern decoder-only Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexmill.models.llama.model import Llama
from lexmill.params.shapes_tmp import LlamaShape

__all__ = ["Llama", "build"]


def build(config: Mapping[str, Any]) -> Llama:
    """A `Llama` with fresh weights from `shape` (the fields of `LlamaShape`) and `vocab_size`."""
    return Llama(LlamaShape(**config["shape"]), int(config["vocab_size"]))
