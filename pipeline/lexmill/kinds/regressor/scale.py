"""The numbers of a labelled corpus, and what a network's outputs mean on their scale.

Letters: N texts, K levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.corpora.prepared import PreparedCorpus

Floats = NDArray[np.float64]
MOST_LEVELS = 100


def number_of(label: str, corpus: PreparedCorpus) -> float:
    """Return a label as a number.

    Raises:
        UserError: it is none, or not finite.
    """
    try:
        found = float(label)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise UserError(f"the label {value_text(label)} is no number; a regressor needs numbers", corpus.folder)
    return found


def levels_of(corpus: PreparedCorpus) -> list[float]:
    """Return the different labels as numbers, in order.

    Raises:
        UserError: one is no number, or there are fewer than two or more than `MOST_LEVELS`.
    """
    found = sorted({number_of(label, corpus) for label in corpus.labels})
    if not 2 <= len(found) <= MOST_LEVELS:
        raise UserError(
            f"{len(found)} different numbers; with recipe.target: level there are 2 to {MOST_LEVELS}", corpus.folder
        )
    return found


def expected(chances: Floats, levels: Sequence[float]) -> Floats:
    """Return the expected number of each text, (N,).

    Args:
        chances: that the text is above each level but the last, (N, K - 1).
        levels: in order, (K,).
    """
    return np.asarray(levels[0] + chances @ np.diff(np.array(levels)))


def nearest(predicted: Floats, levels: Sequence[float]) -> NDArray[np.int64]:
    """Return the number of the level nearest to each prediction, (N,); of two the lower one."""
    return np.abs(predicted[:, None] - np.array(levels)[None, :]).argmin(axis=1).astype(np.int64)
