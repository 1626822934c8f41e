from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill.kinds.classifier.metrics import confusion_counts
from lexmill.report.confusion import MOST_LABELS, ClassMetrics, confusion, per_class


def test_counts_shares_recall_and_precision() -> None:
    found = confusion({"no as no": 8, "no as yes": 2, "yes as yes": 5})
    assert found is not None
    assert found.labels == ["no", "yes"]
    (no, cells, recall), (yes, others, all_of_them) = found.rows
    assert (no, [cell.count for cell in cells], recall) == ("no", [8, 2], 0.8)
    assert (yes, [cell.count for cell in others], all_of_them) == ("yes", [0, 5], 1.0)
    assert found.precisions == [1.0, 5 / 7]
    assert found.largest == [("no", "yes", 2)]


@given(st.lists(st.lists(st.sampled_from(["as", "x", "", "\\", "\\as", "has"]), max_size=4), min_size=1, max_size=6))
def test_any_labels_give_their_own_cells(words: list[list[str]]) -> None:
    """Of labels as `sold as seen`, two pairs had one key, and the count of one was lost."""
    labels = sorted({" ".join(label) for label in words} | {"new"})
    rows, wanted = [], {}
    for i, right in enumerate(labels):
        for j, predicted in enumerate(labels):
            wanted[right, predicted] = 1 + i + len(labels) * j
            row = {"label": right, "predicted": predicted, "probabilities": {}}
            rows += [row] * wanted[right, predicted]
    found = confusion(confusion_counts(rows))
    assert found is not None
    assert found.labels == labels
    assert {
        (right, other): cell.count for right, cells, _ in found.rows for other, cell in zip(labels, cells, strict=True)
    } == wanted


def test_many_labels_are_a_list() -> None:
    names = [f"label {i:02}" for i in range(MOST_LABELS + 3)]
    found = confusion({f"{a} as {b}": 1 + (a == b) for a in names for b in names})
    assert found is not None
    assert not found.readable
    assert len(found.largest) == MOST_LABELS


@pytest.mark.parametrize("counts", [None, {}, [], "x"])
def test_no_counts(counts: object) -> None:
    assert confusion(counts) is None


def test_a_label_that_is_never_right_or_predicted() -> None:
    found = confusion({"a as b": 3})
    assert found is not None
    assert [recall for _, _, recall in found.rows] == [0.0, None]
    assert found.precisions == [None, 0.0]


def test_metrics_of_each_label_by_label() -> None:
    measured = {"ham": {"items": 9, "precision": 0.5, "recall": 1.0, "f1": 0.7, "roc_auc": 0.9}, "a as b": {"items": 0}}
    assert per_class(measured) == [
        ClassMetrics("a as b", 0, None, None, None, None),
        ClassMetrics("ham", 9, 0.5, 1.0, 0.7, 0.9),
    ]
    assert per_class(None) == per_class([]) == []
