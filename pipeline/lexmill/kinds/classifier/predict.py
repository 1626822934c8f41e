"""Predictions of a packaged classifier: {"label", "score", "scores": {label: probability}}; no params.

One that may abstain adds "abstained": whether the score is below its threshold, so that the label is not to be trusted.

Letters: N texts, B texts in a batch, T tokens, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.data.texts import Text, as_pairs, encode, pad
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
        labels, most = self.config["labels"], self.config["max_tokens"]
        given = as_pairs(texts) if "separator" in self.config else texts
        chances = classify_texts(self.module, self.tokenizer, given, most, predictor.BATCH_TOKENS)  # (N, L)
        found = []
        for row in chances:
            best = int(row.argmax())
            scores = {label: float(chance) for label, chance in zip(labels, row, strict=True)}
            answer = {"label": labels[best], "score": float(row[best]), "scores": scores}
            threshold = self.config.get("threshold")
            found.append(answer | ({} if threshold is None else {"abstained": answer["score"] < threshold}))
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
    module: nn.Module, tokenizer: Tokenizer, texts: Sequence[Text], max_tokens: int, batch_tokens: int
) -> NDArray[np.float64]:
    """Return probabilities (N, L), in the order of the model's labels; each row sums to 1.

    Texts of similar length run together; no result depends on the other texts.

    Args:
        module: a classifier in eval mode.
        max_tokens: longer texts are cut, as in training.
        batch_tokens: tokens in one forward pass, padding included.

    Raises:
        UserError: a text is not Unicode.
    """
    import torch

    from lexmill.decoding.batching import by_length

    device = next(tensor.device for tensor in (*module.parameters(), *module.buffers()))
    encoded = encode(tokenizer, texts, max_tokens) if texts else []
    found: list[NDArray[np.float64]] = [np.empty(0)] * len(encoded)
    for group in by_length([max(1, len(ids)) for ids in encoded], batch_tokens):
        tokens, mask = pad([encoded[i] for i in group])  # (B, T); padding is masked: any id does
        with torch.inference_mode():
            logits = module(torch.from_numpy(tokens).to(device), torch.from_numpy(mask).to(device))  # (B, L)
        probabilities = logits.double().softmax(dim=1).cpu().numpy()
        for i, row in zip(group, probabilities, strict=True):
            found[i] = row
    return np.stack(found) if found else np.empty((0, 0))
