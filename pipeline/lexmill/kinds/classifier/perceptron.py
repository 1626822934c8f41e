"""The perceptron of several labels (Rosenblatt 1958; Duda and Hart 1973).

A mistake adds the text's features to the right label's weights, and takes them from those of the label that was given.

With `average` the head is the mean of the weights after each text (Freund and Schapire 1999), which the last few texts
cannot sway. It is kept as a sum in which each change counts once for each text after it (Daume 2006, figure 2.3).

Cost of a text: L products with its features that are not 0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from lexmill.data.permutation import fold, permute
from lexmill.kinds.classifier import Perceptron
from lexmill.kinds.classifier.solution import Note, Solution, Texts, measure
from lexmill.models.common.sparse_rows import SparseRows, width_of

Numbers = NDArray[np.float64]


def fit_perceptron(texts: Texts, settings: Perceptron, seed: int, note: Note) -> Solution:
    """Fit from zero weights, over the texts in a new order each pass, a function of (seed, pass)."""
    labels = texts.labels.tolist()
    weight = np.zeros((texts.classes, width_of(texts.features) + 1))  # the last column is the bias
    late = np.zeros_like(weight)  # each change times the number of texts before it
    newest = Solution(number=0, passes=0, loss=0.0, weight=torch.empty(0), bias=torch.empty(0))
    seen = 0
    for epoch in range(settings.epochs):
        mistakes = 0
        for text in permute(np.arange(len(labels)), len(labels), fold(seed, "perceptron", epoch)).tolist():
            columns, values = _features(texts, text)
            given, right = int(np.argmax(weight[:, columns] @ values)), labels[text]
            if given != right:
                mistakes += 1
                for label, sign in ((right, 1.0), (given, -1.0)):
                    weight[label, columns] += sign * values
                    late[label, columns] += sign * seen * values
            seen += 1
        head = torch.from_numpy(weight - late / seen if settings.average else weight.copy())
        newest = replace(newest, number=epoch + 1, passes=epoch + 1, weight=head[:, :-1], bias=head[:, -1])
        newest = replace(newest, loss=measure(texts, newest.weight, newest.bias)[0])
        note(newest)
        if not mistakes and not settings.average:
            break  # no further text changes a weight
    return newest


def _features(texts: Texts, number: int) -> tuple[NDArray[np.int64] | slice, Numbers]:
    """Return the columns of a text's features and their values, the bias's 1 last."""
    if isinstance(texts.features, SparseRows):
        columns, values = texts.features.row(number)
        last = texts.features.width
        return np.append(columns.numpy(), last), np.append(values.numpy(), 1.0)
    return slice(None), np.append(texts.features[number].numpy(), 1.0)
