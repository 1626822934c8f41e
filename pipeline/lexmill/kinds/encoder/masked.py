"""How an encoder predicts masked tokens: by itself, or by its generator."""

from __future__ import annotations

from typing import Any, cast

from lexmill.decoding.masked_tokens import Reader
from lexmill.decoding.predictor import Predictor
from lexmill.evaluation.subject import Subject


def reader(model: Predictor | Subject) -> Reader:
    """Return what predicts the masked tokens of a model."""
    network = cast(Any, getattr(model.module, "generator", model.module))
    return Reader(
        predict=lambda tokens, mask, masked: network(tokens, mask, masked)[0],
        tokenizer=model.tokenizer,
        begin=model.tokenizer.bos_id,
        max_tokens=model.config["max_tokens"],
        device=next(model.module.parameters()).device,
    )
