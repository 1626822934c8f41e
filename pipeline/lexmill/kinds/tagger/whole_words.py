"""Taggers of whole words, a hidden Markov model or an averaged perceptron, as the tables of a model folder.

Letters: F features, L tags.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lexmill import models
from lexmill.kinds.tagger.markov_model import MarkovModel
from lexmill.kinds.tagger.perceptron import Perceptron

if TYPE_CHECKING:
    from lexmill.models.common.word_tagging import WordTagger

Learned = MarkovModel | Perceptron


def stored(learned: Learned, config: dict[str, Any]) -> WordTagger:
    """Return the module of what was learned, and write its number of features into the config.

    A feature whose scores are those of an unknown one is left out, and of more than `shape.n_feature` the ones whose
    scores are nearest to them.
    """
    import torch

    if isinstance(learned, MarkovModel):
        features, scores = learned.words, learned.emissions  # (F,), (F + 1, L)
    else:
        features, scores = learned.features, learned.weights
    distance = np.abs(scores[:-1] - scores[-1]).max(axis=1)  # (F,)
    order = np.argsort(-distance, kind="stable")[: config["shape"]["n_feature"]]
    kept = [i for i in order.tolist() if distance[i] > 0] or [0]
    config["shape"] = {**config["shape"], "n_feature": len(kept)}
    module = cast("WordTagger", models.build(config))
    places = [kept[i] for i in module.encoder.learn([features[i] for i in kept])]
    module.scores.copy_(torch.from_numpy(scores[[*places, -1]]))
    if isinstance(learned, MarkovModel) and (chain := module.chain):
        for there, here in zip(chain, (learned.transitions, learned.begin, learned.end), strict=True):
            there.copy_(torch.from_numpy(here))
    return module.eval()


def loaded(module: WordTagger, config: Mapping[str, Any]) -> Learned:
    """Return what a module of such a model has learned."""
    scores = module.scores.cpu().numpy()
    if (chain := module.chain) is None:
        return Perceptron(config["tags"], scores, module.encoder.row)
    transitions, begin, end = (one.cpu().numpy() for one in chain)
    return MarkovModel(config["tags"], begin, transitions, end, scores, module.encoder.row)
