"""Predictions of a packaged multi-label classifier: {"labels", "scores": {label: probability}}; no params.

Letters: N texts, L labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lexmill.data.texts import Read, as_pairs, read
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
        chances = probabilities(self.module, read(self.tokenizer, given, self.config), predictor.TEXT_TOKENS)
        return [labelled(self.config, row) for row in chances]


def labelled(config: Mapping[str, Any], chances: Floats) -> dict[str, Any]:
    """Return the labels of a text whose probability is enough, and the probability of each label, from (L,)."""
    scores = dict(zip(config["labels"], chances.tolist(), strict=True))
    enough = zip(scores.items(), config["thresholds"], strict=True)
    return {"labels": [label for (label, chance), least in enough if chance >= least], "scores": scores}


def probabilities(module: nn.Module, texts: Read, batch_tokens: int) -> Floats:
    """Return the probability of each label, (N, L); no text's depends on the others.

    Args:
        module: a multi-label classifier; in eval mode.
        batch_tokens: tokens in one forward pass, padding included.
    """
    from lexmill.decoding.whole_texts import outputs

    return np.asarray(outputs(module, texts, batch_tokens).sigmoid())
