"""Predictions of a packaged encoder: the most probable tokens for each [MASK] of a text (`lexmill.decoding.fill`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lexmill.decoding import predictor
from lexmill.decoding.fill import fill
from lexmill.kinds.encoder import masked


class Predictor(predictor.Predictor):
    """Fills in masks."""

    most: ClassVar[Mapping[str, int]] = {"top": 1000}

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"top": 5}

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> Any:
        return [{"mask": 1, "token": "", "probability": 0.5, "text": ""}]

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[Any]:
        return fill(masked.reader(self), texts, top=chosen["top"])
