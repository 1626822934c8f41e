"""How a language model of the method `hybrid` predicts masked tokens: each at the position before it."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.decoding.masked_tokens import Reader
from lexmill.decoding.predictor import Predictor
from lexmill.evaluation.subject import Subject


def reader(model: Predictor | Subject) -> Reader:
    """Return what predicts the masked tokens of a model; a text is between two end tokens, as documents are.

    Raises:
        UserError: the model has learned next tokens only.
    """
    if not model.config.get("masked"):
        raise UserError(
            f"'{model.name}' reads from the left only; recipe.method: hybrid trains one that predicts masked tokens"
        )
    module = cast(Any, model.module)

    def predict(tokens: Tensor, mask: Tensor, masked: Tensor) -> Tensor:
        hidden = module.both_directions(tokens, mask)[:, :-1]  # (B, T - 1, D)
        logits: Tensor = module.logits(hidden[masked[:, 1:]])
        return logits

    device = next(module.parameters()).device
    return Reader(predict, model.tokenizer, model.tokenizer.eos_id, module.context, device)
