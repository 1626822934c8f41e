"""Predictions of a packaged classifier: {"label", "score", "scores": {label: probability}}; no params.

One that may abstain adds "abstained": whether the score is below its threshold, so that the label is not to be trusted.

Shape letters: N texts, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.data.texts import Text, as_pairs, read
from lexmill.decoding import predictor
from lexmill.kinds.classifier.telling import telling

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer


class Predictor(predictor.Predictor):
    """Labels texts."""

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        answer = {"label": "", "score": 0.5, "scores": dict.fromkeys(config["labels"], 0.5)}
        return answer | ({"abstained": False} if "threshold" in config else {})

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
        labels = self.config["labels"]
        given = as_pairs(texts) if "separator" in self.config else texts
        chances = classify_texts(self.module, self.tokenizer, given, self.config, predictor.TEXT_TOKENS)  # (N, L)
        found: list[dict[str, Any]] = []
        for row in chances.tolist():
            score = max(row)
            scores = dict(zip(labels, row, strict=True))
            found.append({"label": labels[row.index(score)], "score": score, "scores": scores})
        if (threshold := self.config.get("threshold")) is not None:
            for answer in found:
                answer["abstained"] = answer["score"] < threshold
        return found

    def telling(self) -> list[dict[str, Any]]:
        """Return the n-grams that speak most for each label (see `telling.telling`).

        Raises:
            UserError: the model reads more than a bag of n-grams.
        """
        from lexmill.models.common.heads import BagClassifier

        if not isinstance(self.module, BagClassifier):
            raise UserError("only a classifier on a bag of n-grams has telling features; this is another")
        return telling(self.module, self.tokenizer, self.config["labels"])


def classify_texts(
    module: nn.Module, tokenizer: Tokenizer, texts: Sequence[Text], config: Mapping[str, Any], batch_tokens: int
) -> NDArray[np.float64]:
    """Return probabilities (N, L), in the order of the model's labels; each row sums to 1.

    Args:
        module: a classifier; in eval mode.
        config: the model's.
        batch_tokens: tokens in one forward pass, padding included; no text's depend on the others.

    Raises:
        UserError: a text is not Unicode.
    """
    from lexmill.decoding.whole_texts import outputs

    return np.asarray(outputs(module, read(tokenizer, texts, config), batch_tokens).softmax(dim=1))
