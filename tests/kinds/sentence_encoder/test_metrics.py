"""Ranks and metrics beside a slow search, scipy, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.sentence_encoder.metrics import TEST, rows_of, summarise, worst
from lexmill.kinds.sentence_encoder.retrieval import belongs, of_vectors, partner_ranks

HOW = Resampling(20, 0.95, 0)


def units(count: int, width: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, width))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("label", "positive", "together"),
    [
        ("1", "1", True),
        ("0", "1", False),
        ("4.5", "4", True),
        ("3", "4", False),
        ("same", "same", True),
        ("other", "same", False),
        ("other", "", True),
        ("same", "4", False),
    ],
)
def test_which_pairs_belong_together(label: str, positive: str, together: bool) -> None:
    assert belongs({"label": label}, positive) is together


def test_ranks_beside_a_slow_search() -> None:
    random = np.random.default_rng(1)
    texts = {f"t{i}": vector for i, vector in enumerate(units(30, 3, 2))}
    names = list(texts)
    pairs = sorted({(str(random.choice(names)), str(random.choice(names))) for _ in range(60)})
    records = [{"text": one, "second": other} for one, other in pairs]
    first, second = (np.array([texts[record[side]] for record in records]) for side in ("text", "second"))
    wanted = []
    for one, other in pairs:
        others = {text for _, text in pairs} - {text for query, text in pairs if query == one} - {one}
        own = texts[one] @ texts[other]
        wanted.append(1 + sum(texts[one] @ texts[text] >= own for text in others - {other}))
    assert partner_ranks(records, of_vectors(first, second)) == wanted


def test_equal_vectors_find_nothing() -> None:
    records = [{"text": f"a{i}", "second": f"b{i}"} for i in range(5)]
    assert partner_ranks(records, of_vectors(np.ones((5, 2)), np.ones((5, 2)))) == [5] * 5


def test_metrics_by_hand_and_beside_scipy() -> None:
    cosines, labels = [0.9, 0.2, 0.5, 0.1], ["5", "1", "4", "4"]
    records = [
        {"id": str(i), "group": str(i), "text": f"a{i}", "second": f"b{i}", "label": label}
        for i, label in enumerate(labels)
    ]
    table = np.array([[0.9, 0.3, 0.2], [0.8, 0.5, 0.4], [0.3, 0.2, 0.1]])  # of the pairs 0, 2, 3
    rows = rows_of(records, "4", np.array(cosines), lambda some, others: table[np.ix_(some, others)])
    assert [row["rank"] for row in rows] == [1, None, 2, 3]
    found = summarise(rows, "pair", HOW)
    assert found["accuracy_at_1"] == pytest.approx(1 / 3)
    assert found["mean_reciprocal_rank"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert found["spearman"] == pytest.approx(spearmanr(cosines, [5, 1, 4, 4]).statistic)
    assert (found["items"], found["pairs"]) == (4, 3)
    assert found["accuracy_at_1_low"] <= found["accuracy_at_1"] <= found["accuracy_at_1_high"]
    assert worst(rows, 2) == [3, 2]
    _, sums = TEST.score(rows)
    assert np.sum([sums(row) for row in rows], axis=0).tolist() == [1, 3]


def test_labels_that_are_no_numbers_have_no_correlation() -> None:
    records = [{"id": i, "group": i, "text": f"a{i}", "second": f"b{i}", "label": "same"} for i in "xy"]
    rows = rows_of(records, "same", np.ones(2), of_vectors(units(2, 2, 0), units(2, 2, 1)))
    assert "spearman" not in summarise(rows, "pair", HOW)
    with pytest.raises(UserError, match="no pair of the test split belongs together"):
        summarise(rows_of(records, "other", np.ones(2), of_vectors(np.empty((0, 2)), np.empty((0, 2)))), "pair", HOW)
