"""Naive Bayes on counts of n-grams: closed form, one pass over train.

With N_y texts of label y among N, the weights of a label are logarithms, so the head's logits are, up to a number that
all labels share, log p(y) + log p(text | y), and its softmax is p(y | text):

    multinomial   log p(y) + sum over n-grams g of count(g) log p(g | y),  p(g | y) = (count(g, y) + a) / sum of these
    Bernoulli     log p(y) + sum over g in the text of log p_g + over g not in it of log (1 - p_g),
                  p_g = (texts of y with g + a) / (N_y + 2 a)

(McCallum and Nigam 1998, with a in place of 1.)
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lexmill.kinds.classifier import NaiveBayes
from lexmill.kinds.classifier.solution import Note, Solution, Texts, measure
from lexmill.models.common.sparse_rows import SparseRows

_LEAST = 1e-12  # the probability of a label that no text of train has: of 0 there is no logarithm


def fit_naive_bayes(texts: Texts, settings: NaiveBayes, note: Note) -> Solution:
    """Return the head; a bag with Bernoulli events must be binary."""
    assert isinstance(texts.features, SparseRows)
    counts = torch.bincount(texts.labels, minlength=texts.classes).double()  # (L,)
    log_prior = (counts / counts.sum()).clamp(min=_LEAST).log()
    summed = _sums(texts.features, texts.labels, texts.classes) + settings.alpha  # (L, F)
    if settings.event == "multinomial":
        weight, bias = summed.log() - summed.sum(dim=1, keepdim=True).log(), log_prior
    else:
        share = summed / (counts + 2 * settings.alpha)[:, None]
        weight = share.log() - (-share).log1p()
        bias = log_prior + (-share).log1p().sum(dim=1)
    found = Solution(number=1, passes=1, loss=0.0, weight=weight, bias=bias)
    found = replace(found, loss=measure(texts, weight, bias)[0])
    note(found)
    return found


def _sums(features: SparseRows, labels: Tensor, classes: int) -> Tensor:
    """Return the sum of the features of each label's texts, (L, F)."""
    places = labels[features.rows] * features.width + features.columns
    return (
        torch.zeros(classes * features.width, dtype=torch.float64)
        .index_add(0, places, features.values)
        .view(classes, -1)
    )
