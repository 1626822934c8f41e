"""Positive pointwise mutual information and its factors, beside dense arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from lexmill.kinds.word_vectors.baselines import factorised, mutual_information
from lexmill.kinds.word_vectors.cells import Cells, cooccurrences
from tests.kinds.word_vectors.made_text import known


def test_mutual_information_by_hand() -> None:
    """X = [[2, 1], [1, 0]]: X_0 = 3, X_1 = 1, their sum 4; log(2 * 4 / 9) is negative, log(4 / 3) is not."""
    cells = Cells(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([2.0, 1.0, 1.0]))
    found = mutual_information(cells, 2).toarray()
    assert found == pytest.approx(np.array([[0, np.log(4 / 3)], [np.log(4 / 3), 0]]))


def test_the_factors_are_those_of_a_dense_decomposition() -> None:
    text = known(np.random.default_rng(0).integers(0, 9, 60).tolist())
    cells, size = cooccurrences(text, 2), len(text.counts)
    table = np.zeros((size, size))
    table[cells.rows, cells.columns] = cells.counts
    sums = table.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        dense = np.log(table * table.sum() / np.outer(sums, sums))
    dense = np.where(table > 0, np.maximum(dense, 0), 0)
    assert mutual_information(cells, size).toarray() == pytest.approx(dense)
    left, scales, _ = np.linalg.svd(dense)
    found = factorised(cells, size, 3)
    assert found.shape == (size, 3)
    # Up to the sign and order of the columns.
    wanted = left[:, :3] * np.sqrt(scales[:3])
    assert np.abs(found[:, ::-1]) == pytest.approx(np.abs(wanted), abs=1e-5)
    assert np.abs(found[: len(found) - 9]).max() < 1e-6, "special tokens are in no cell"


def test_more_dimensions_than_words_are_zeros() -> None:
    found = factorised(cooccurrences(known([0, 1, 2, 1], size=3), 1), 8, 20)
    assert found.shape == (8, 20)
    assert not found[:, 7:].any()
