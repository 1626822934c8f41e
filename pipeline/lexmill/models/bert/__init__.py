"""The BERT encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.models.bert.shape import Shape

if TYPE_CHECKING:
    from torch import nn


def build(config: Mapping[str, Any]) -> nn.Module:
    """A `Bert` with fresh weights from `shape` (the fields of `Shape`) and `vocab_size`; a classifier with `labels`."""
    from lexmill.models.bert.model import Bert
    from lexmill.models.common.heads import under_head

    return under_head(Bert(Shape(**config["shape"]), int(config["vocab_size"])), config)
