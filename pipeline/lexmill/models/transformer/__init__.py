"""The encoder-decoder Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.models.transformer.shape import Shape

if TYPE_CHECKING:
    from lexmill.models.transformer.model import Transformer


def build(config: Mapping[str, Any]) -> Transformer:
    """A `Transformer` with fresh weights from `shape` (the fields of `Shape`) and `vocab_size`."""
    from lexmill.models.transformer.model import Transformer

    return Transformer(Shape(**config["shape"]), int(config["vocab_size"]))
