"""The modern decoder-only Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.models.llama.shape import Shape

if TYPE_CHECKING:
    from lexmill.models.llama.model import Llama


def build(config: Mapping[str, Any]) -> Llama:
    """A `Llama` with fresh weights from `shape` (the fields of `Shape`) and `vocab_size`."""
    from lexmill.models.llama.model import Llama

    return Llama(Shape(**config["shape"]), int(config["vocab_size"]))
