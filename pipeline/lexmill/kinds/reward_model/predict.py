"""Predictions of a packaged reward model: the reward of a conversation's last answer, from its messages as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.data.conversations import Messages, encode
from lexmill.decoding import predictor

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer

_ROLES = ("system", "user", "assistant")


class Predictor(predictor.Predictor):
    """Rates answers."""

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> float:
        return 0.5

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[float]:
        conversations = [_messages(text) for text in texts]
        return rewards(self.module, self.tokenizer, conversations, predictor.BATCH_TOKENS)


def rewards(
    module: nn.Module, tokenizer: Tokenizer, conversations: Sequence[Messages], batch_tokens: int
) -> list[float]:
    """Return the reward of each conversation; none depends on the others.

    Args:
        module: a reward model in eval mode.
        batch_tokens: tokens in one forward pass, padding included.
    """
    import torch

    from lexmill.decoding.batching import by_length

    model: Any = module
    encoded = [one.last(model.context) for one in encode(tokenizer, conversations)]
    device = next(module.parameters()).device
    found = [0.0] * len(encoded)
    for group in by_length([len(one.ids) for one in encoded], batch_tokens):
        tokens = torch.full((len(group), max(len(encoded[i].ids) for i in group)), tokenizer.pad_id)
        for row, i in enumerate(group):
            tokens[row, : len(encoded[i].ids)] = torch.from_numpy(encoded[i].ids)
        last = torch.tensor([len(encoded[i].ids) - 1 for i in group])
        with torch.inference_mode():
            values = model(tokens.to(device), last.to(device))
        for i, value in zip(group, values.tolist(), strict=True):
            found[i] = value
    return found


def _messages(text: str) -> Messages:
    """Read messages; raise `UserError` for anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(_is_message(one) for one in found):
        raise UserError(
            f"{value_text(text, 80)} is not a list of messages in JSON,"
            ' [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]'
        )
    return found


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("role") in _ROLES and isinstance(value.get("content"), str)
