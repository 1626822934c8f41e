"""Predictions of a packaged regressor: {"number"}, with "level" where it learned levels; no params.

Letters: N texts, K levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from lexmill.data.texts import Text, as_pairs, encode, pad
from lexmill.decoding import predictor
from lexmill.kinds.regressor.scale import Floats, expected, nearest

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer


class Predictor(predictor.Predictor):
    """Rates texts."""

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> dict[str, float]:
        return {"number": 0.5, **({"level": 0.5} if config["levels"] else {})}

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[dict[str, float]]:
        given = as_pairs(texts) if "separator" in self.config else texts
        numbers = rate(self.module, self.tokenizer, given, self.config, predictor.BATCH_TOKENS)
        levels = self.config["levels"]
        if not levels:
            return [{"number": float(number)} for number in numbers]
        return [
            {"number": float(number), "level": levels[place]}
            for number, place in zip(numbers, nearest(numbers, levels), strict=True)
        ]


def rate(
    module: nn.Module, tokenizer: Tokenizer, texts: Sequence[Text], config: Mapping[str, Any], batch_tokens: int
) -> Floats:
    """Return the number of each text, (N,); none depends on the others.

    Args:
        module: a regressor in eval mode.
        config: of the model: `levels`, `max_tokens`.
        batch_tokens: tokens in one forward pass, padding included.

    Raises:
        UserError: a text is not Unicode.
    """
    import torch

    from lexmill.decoding.batching import by_length

    device = next(module.parameters()).device
    encoded = encode(tokenizer, texts, config["max_tokens"]) if texts else []
    found = np.zeros(len(encoded))
    for group in by_length([len(ids) for ids in encoded], batch_tokens):
        tokens, mask = pad([encoded[i] for i in group])
        with torch.inference_mode():
            outputs = module(torch.from_numpy(tokens).to(device), torch.from_numpy(mask).to(device))
        values = outputs.double().cpu().numpy()  # (B, 1) or (B, K - 1)
        found[group] = expected(expit(values), config["levels"]) if config["levels"] else values[:, 0]
    return found
