"""Predictions of a packaged multi-label classifier: {"labels", "scores": {label: probability}}; no params.

Letters: N texts, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lexmill.data.texts import as_pairs, encode, pad
from lexmill.decoding import predictor
from lexmill.kinds.multilabel_classifier.label_sets import Floats

if TYPE_CHECKING:
    from torch import nn


class Predictor(predictor.Predictor):
    """Gives texts their labels."""

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"labels": config["labels"][:1], "scores": dict.fromkeys(config["labels"], 0.5)}

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
        given = as_pairs(texts) if "separator" in self.config else texts
        encoded = encode(self.tokenizer, given, self.config["max_tokens"])
        chances = probabilities(self.module, encoded, predictor.BATCH_TOKENS)
        return [labelled(self.config, row) for row in chances]


def labelled(config: Mapping[str, Any], chances: Floats) -> dict[str, Any]:
    """Return the labels of a text whose probability is enough, and the probability of each label, from (L,)."""
    scores = dict(zip(config["labels"], chances.tolist(), strict=True))
    enough = zip(scores.items(), config["thresholds"], strict=True)
    return {"labels": [label for (label, chance), least in enough if chance >= least], "scores": scores}


def probabilities(module: nn.Module, encoded: Sequence[Sequence[int]], batch_tokens: int) -> Floats:
    """Return the probability of each label, (N, L); no text's depends on the others.

    Args:
        module: a multi-label classifier; it is left in eval mode.
        encoded: the tokens of each text.
        batch_tokens: tokens in one forward pass, padding included.
    """
    import torch

    from lexmill.decoding.batching import by_length

    module.eval()
    device = next(module.parameters()).device
    found: list[Floats] = [np.empty(0)] * len(encoded)
    for group in by_length([len(ids) for ids in encoded], batch_tokens):
        tokens, mask = pad([encoded[i] for i in group])
        with torch.inference_mode():
            logits = module(torch.from_numpy(tokens).to(device), torch.from_numpy(mask).to(device))  # (B, L)
        for i, row in zip(group, logits.double().sigmoid().cpu().numpy(), strict=True):
            found[i] = row
    return np.stack(found) if found else np.empty((0, 0))
