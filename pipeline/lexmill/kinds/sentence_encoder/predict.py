"""Predictions of a packaged sentence encoder: for two texts with a tab between, {"cosine"}; no params.

Letters: N texts, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lexmill.data.texts import as_pairs, read
from lexmill.decoding import predictor
from lexmill.kinds.sentence_encoder.retrieval import Floats

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer


class Predictor(predictor.Predictor):
    """Compares texts."""

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> dict[str, float]:
        return {"cosine": 0.5}

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[dict[str, float]]:
        first, second = (self.vectors(side) for side in zip(*as_pairs(texts), strict=True))
        return [{"cosine": float(one @ other)} for one, other in zip(first, second, strict=True)]

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, of length 1, (N, D)."""
        return vectors(self.module, self.tokenizer, texts, self.config["max_tokens"], predictor.TEXT_TOKENS)


def vectors(
    module: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int, batch_tokens: int
) -> Floats:
    """Return the vectors of texts, of length 1, (N, D); none depends on the other texts.

    Args:
        module: a sentence encoder; in eval mode.
        max_tokens: longer texts are cut, as in training.
        batch_tokens: tokens in one forward pass, padding included.

    Raises:
        UserError: a text is not Unicode.
    """
    from lexmill.decoding.whole_texts import outputs

    return np.asarray(outputs(module, read(tokenizer, texts, {"max_tokens": max_tokens}), batch_tokens))
