"""Predictions of a packaged regressor: {"number"}, with "level" where it learned levels; no params.

Shape letters: N texts, K levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scipy.special import expit

from lexmill.data.texts import Text, as_pairs, read
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
        numbers = rate(self.module, self.tokenizer, given, self.config, predictor.TEXT_TOKENS)
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
    """Return the number of each text, (N,).

    Args:
        module: a regressor; in eval mode.
        config: the model's.
        batch_tokens: tokens in one forward pass, padding included; no text's number depends on the others.

    Raises:
        UserError: a text is not Unicode.
    """
    from lexmill.decoding.whole_texts import outputs

    values = outputs(module, read(tokenizer, texts, config), batch_tokens).numpy()  # (N, 1) or (N, K - 1)
    return expected(expit(values), config["levels"]) if config["levels"] else values[:, 0]
