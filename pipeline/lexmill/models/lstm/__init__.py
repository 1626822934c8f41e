"""The recurrent language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexmill.models.lstm.model import LSTM
from lexmill.params.shapes_tmp import LSTMShape

__all__ = ["LSTM", "build"]


def build(config: Mapping[str, Any]) -> LSTM:
    """An `LSTM` with fresh weights from `shape` (the fields of `LSTMShape`) and `vocab_size`."""
    return LSTM(LSTMShape(**config["shape"]), int(config["vocab_size"]))
