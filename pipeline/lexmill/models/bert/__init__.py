"""The BERT encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.models.bert.shape import Shape

if TYPE_CHECKING:
    from lexmill.models.bert.model import Bert


def build(config: Mapping[str, Any]) -> Bert:
    """A `Bert` with fresh weights from `shape` (the fields of `Shape`) and `vocab_size`."""
    from lexmill.models.bert.model import Bert

    return Bert(Shape(**config["shape"]), int(config["vocab_size"]))
