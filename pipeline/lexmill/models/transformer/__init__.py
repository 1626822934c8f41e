"""The encoder-decoder Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexmill.models.transformer.cache import TransformerCache
from lexmill.models.transformer.model import Transformer
from lexmill.params.shapes_tmp import TransformerShape

__all__ = ["Transformer", "TransformerCache", "build"]


def build(config: Mapping[str, Any]) -> Transformer:
    """A `Transformer` with fresh weights from `shape` (the fields of `TransformerShape`) and `vocab_size`."""
    return Transformer(TransformerShape(**config["shape"]), int(config["vocab_size"]))
