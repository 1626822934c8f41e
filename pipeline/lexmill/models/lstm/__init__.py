"""The recurrent language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.models.lstm.shape import Shape

if TYPE_CHECKING:
    from lexmill.models.lstm.model import LSTM


def build(config: Mapping[str, Any]) -> LSTM:
    """An `LSTM` with fresh weights from `shape` (the fields of `Shape`) and `vocab_size`."""
    from lexmill.models.lstm.model import LSTM

    return LSTM(Shape(**config["shape"]), int(config["vocab_size"]))
