"""The recurrent network of Elman (1990): a family that only a test puts beside the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.models.elman.shape import Shape

if TYPE_CHECKING:
    from lexmill.models.elman.model import Elman


def build(config: Mapping[str, Any]) -> Elman:
    """An `Elman` with fresh weights from `shape` (the fields of `Shape`) and `vocab_size`."""
    from lexmill.models.elman.model import Elman

    return Elman(Shape(**config["shape"]), int(config["vocab_size"]))
