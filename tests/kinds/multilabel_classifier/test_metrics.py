"""Sets of labels by hand, thresholds beside a search of all, metrics beside scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, hamming_loss

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import labels_of
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.multilabel_classifier.label_sets import as_matrix, best_thresholds
from lexmill.kinds.multilabel_classifier.metrics import TEST, multilabel_row, per_label, summarise, worst

HOW = Resampling(50, 0.95, 0)
LABELS = ["a", "b", "c", "d"]


def rows(right: Any, found: Any) -> list[dict[str, Any]]:
    def names(row: Any) -> list[str]:
        return [label for label, has in zip(LABELS, row, strict=True) if has]

    return [
        multilabel_row({"id": f"{i}", "group": f"{i}", "text": f"{i}"}, names(a), dict.fromkeys(LABELS, 0.5), names(b))
        for i, (a, b) in enumerate(zip(right, found, strict=True))
    ]


def test_a_label_of_the_corpus_is_a_set() -> None:
    assert labels_of("b; a;b") == ["a", "b"]
    assert labels_of("none") == labels_of(" ; ") == []
    assert as_matrix([["b"], [], ["a", "z"]], ["a", "b"]).tolist() == [[False, True], [False, False], [True, False]]


def test_metrics_are_scikit_learns() -> None:
    random = np.random.default_rng(0)
    right, found = random.random((60, 4)) < 0.4, random.random((60, 4)) < 0.5
    right[:, 3] = found[:, 3] = False  # a label that is never right nor given
    measured = summarise(rows(right, found), "item", HOW)
    for kind in ("micro", "macro"):
        assert measured[f"{kind}_f1"] == pytest.approx(f1_score(right, found, average=kind, zero_division=0))
    assert measured["exact_match"] == pytest.approx(accuracy_score(right, found))
    assert measured["hamming_loss"] == pytest.approx(hamming_loss(right, found))
    assert measured["micro_f1_low"] < measured["micro_f1"] < measured["micro_f1_high"]
    assert measured["items"] == 60
    each = per_label(rows(right, found))
    assert each["a"]["f1"] == pytest.approx(f1_score(right[:, 0], found[:, 0]))
    assert each["d"] == {"items": 0}


def test_without_rows_or_labels_there_is_nothing_to_measure() -> None:
    with pytest.raises(UserError, match="the test split is empty"):
        summarise([], "item", HOW)
    with pytest.raises(UserError, match="has a label"):
        summarise([multilabel_row({"id": "0", "group": "0", "text": "x"}, [], {}, [])], "item", HOW)


def test_models_are_compared_by_micro_f1() -> None:
    made = rows([[1, 1, 0, 0], [0, 0, 1, 0]], [[1, 0, 0, 1], [0, 0, 1, 0]])
    score, columns = TEST.score("micro_f1")
    assert score(np.sum([columns(row) for row in made], axis=0)) == pytest.approx(4 / 6)
    assert worst(made, 1) == [0]


def f1_at(chances: Any, right: Any, threshold: float) -> float:
    return float(f1_score(right, chances >= threshold, zero_division=0))


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_no_other_threshold_has_a_higher_f1(texts: list[tuple[int, bool]]) -> None:
    chances, right = np.array([one for one, _ in texts]) / 20, np.array([has for _, has in texts])
    (threshold,) = best_thresholds(chances[:, None], right[:, None])
    found = f1_at(chances, right, threshold)
    assert found == pytest.approx(max(f1_at(chances, right, one) for one in np.arange(-0.5, 21) / 20))


def test_of_equal_thresholds_the_one_nearest_to_a_half_is_taken() -> None:
    chances, right = np.array([[0.9], [0.8], [0.3], [0.1]]), np.array([[True], [True], [False], [False]])
    assert best_thresholds(chances, right).tolist() == pytest.approx([0.55])
    assert best_thresholds(chances, ~right & right).tolist() == [0.5]
