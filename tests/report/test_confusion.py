from __future__ import annotations

import pytest

from lexmill.report.confusion import MOST_LABELS, confusion


def test_counts_shares_recall_and_precision() -> None:
    found = confusion({"no as no": 8, "no as yes": 2, "yes as yes": 5})
    assert found is not None
    assert found.labels == ["no", "yes"]
    (no, cells, recall), (yes, others, all_of_them) = found.rows
    assert (no, [cell.count for cell in cells], recall) == ("no", [8, 2], 0.8)
    assert (yes, [cell.count for cell in others], all_of_them) == ("yes", [0, 5], 1.0)
    assert found.precisions == [1.0, 5 / 7]
    assert found.largest == [("no", "yes", 2)]


def test_a_label_may_hold_the_word_between() -> None:
    found = confusion({"sold as seen as sold as seen": 3, "new as new": 2, "new as sold as seen": 1})
    assert found is not None
    assert found.labels == ["new", "sold as seen"]
    assert found.largest == [("new", "sold as seen", 1)]


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
