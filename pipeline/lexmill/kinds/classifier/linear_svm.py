"""The linear support vector machine (Cortes and Vapnik 1995), by scikit-learn's liblinear.

For each label against all others, with y = 1 for its texts and -1 for the rest, over weights w and a bias b,

    l2 / 2 (w^2 + b^2)  +  sum over texts of max(0, 1 - y (w x + b)).

Of two labels there is one such pair; each gets half of it, so that the difference of the logits is the margin.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lexmill.base import progress
from lexmill.kinds.classifier import LinearSVM
from lexmill.kinds.classifier.solution import Note, Solution, Texts, measure
from lexmill.models.common.sparse_rows import Rows, SparseRows


def fit_svm(texts: Texts, settings: LinearSVM, note: Note) -> Solution:
    """Fit to the optimum; the order of the updates is drawn from a fixed seed."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    model = LinearSVC(
        loss="hinge", C=1 / settings.l2, tol=settings.tolerance, max_iter=settings.max_iterations, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # reported below, with what to do
        model.fit(_matrix(texts.features), texts.labels.numpy())
    passes = int(np.max(model.n_iter_))
    if passes >= settings.max_iterations:
        progress.say(
            f"after {passes} passes the support vector machine has not reached recipe.tolerance"
            f" ({settings.tolerance:g}); raise recipe.max_iterations or recipe.l2"
        )
    found_weight, found_bias = torch.from_numpy(model.coef_), torch.from_numpy(np.atleast_1d(model.intercept_))
    if len(model.classes_) == 2:
        found_weight, found_bias = torch.cat([-found_weight, found_weight]), torch.cat([-found_bias, found_bias])
    weight = torch.zeros(texts.classes, found_weight.shape[1], dtype=torch.float64)
    bias = torch.full((texts.classes,), -1.0, dtype=torch.float64)  # of a label that no text has
    weight[model.classes_], bias[model.classes_] = found_weight, found_bias
    if texts.classes == 2:
        weight, bias = weight / 2, bias / 2
    found = Solution(number=passes, passes=passes, loss=0.0, weight=weight, bias=bias)
    found = replace(found, loss=measure(texts, weight, bias)[0])
    note(found)
    return found


def _matrix(features: Rows) -> Any:
    """Return the features as scikit-learn reads them."""
    if not isinstance(features, SparseRows):
        return features.numpy()
    from scipy.sparse import csr_matrix

    parts = (features.values.numpy(), features.columns.numpy(), features.starts.numpy())
    return csr_matrix(parts, shape=(len(features), features.width))
