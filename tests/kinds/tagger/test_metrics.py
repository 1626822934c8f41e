"""Metrics from rows: hand-worked numbers, and the paired test on the metric that fits."""

from __future__ import annotations

import pytest

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.significance import compare
from lexmill.kinds.tagger.metrics import TEST, confusion_counts, per_class, summarise, tagger_row, worst

HOW = Resampling(100, 0.95, 0)


def row(number: int, right: str, found: str, *, marked: bool = True) -> dict[str, object]:
    tags = right.split()
    record = {"id": f"r{number}", "group": f"g{number}", "words": ["w"] * len(tags), "tags": tags}
    return tagger_row(record, found.split(), marked=marked)


# Of the corpus: three persons and two places. Predicted: three persons, of which two are right, and two places, one.
ROWS = [
    row(0, "B-per I-per O B-loc", "B-per I-per O B-loc"),
    row(1, "B-per O O B-loc", "B-per I-per O B-loc"),
    row(2, "B-per O", "B-per B-loc"),
]


def test_the_f1_of_entities_by_hand() -> None:
    found = summarise(ROWS, "document", HOW)
    # seqeval's f1_score, precision_score and recall_score of the same sequences: four of six are right, of five.
    assert found["entity_precision"] == pytest.approx(4 / 6)
    assert found["entity_recall"] == pytest.approx(4 / 5)
    assert found["entity_f1"] == pytest.approx(8 / 11)
    assert found["accuracy"] == pytest.approx(8 / 10)
    assert found["sentence_accuracy"] == pytest.approx(1 / 3)
    assert (found["sentences"], found["words"], found["entities"]) == (3, 10, 5)
    assert found["interval_unit"] == "sentence"
    low, middle, high = (float(found[f"entity_f1{end}"]) for end in ("_low", "", "_high"))
    assert low < middle < high


def test_the_metrics_of_each_type_and_of_each_tag() -> None:
    assert per_class(ROWS) == {
        "loc": {"items": 2, "precision": 2 / 3, "recall": 1.0, "f1": 4 / 5},
        "per": {"items": 3, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3},
    }
    words = [row(0, "N V N", "N N N", marked=False), row(1, "X", "V", marked=False)]
    assert per_class(words) == {
        "N": {"items": 2, "precision": 2 / 3, "recall": 1.0, "f1": 4 / 5},
        "V": {"items": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0},
        "X": {"items": 1, "recall": 0.0, "f1": 0.0},
    }
    assert confusion_counts(words) == {"N as N": 2, "V as N": 1, "X as V": 1}
    assert confusion_counts([row(0, "as", "a\\b", marked=False)]) == {"\\as as a\\\\b": 1}


def test_parts_of_speech_have_no_entities() -> None:
    found = summarise([row(0, "N V", "N N", marked=False), row(1, "N", "N", marked=False)], "document", HOW)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert "entity_f1" not in found


def test_no_entity_at_all_is_no_division_by_zero() -> None:
    found = summarise([row(0, "O O", "O O"), row(1, "O", "O")], "document", HOW)
    assert (found["entity_f1"], found["entity_precision"], found["entity_recall"]) == (0.0, 0.0, 0.0)


def test_no_rows_are_refused() -> None:
    with pytest.raises(UserError, match="the test split is empty"):
        summarise([], "document", HOW)


def test_the_worst_sentences_have_the_most_wrong_tags() -> None:
    assert worst(ROWS, 2) == [1, 2]


def test_two_models_are_compared_by_entities_or_by_words() -> None:
    right = [row(i, "B-per O", "B-per O") for i in range(30)]
    wrong = [row(i, "B-per O", "O O" if i % 2 else "B-per O") for i in range(30)]
    found = compare(TEST, right, wrong, HOW)
    assert (found.metric, found.challenger) == ("entity_f1", 1.0)
    assert found.champion == pytest.approx(2 * 15 / 45)
    assert found.better
    assert found.p_value < 0.05
    assert compare(TEST, right, wrong, HOW, metric="accuracy").champion == pytest.approx(45 / 60)
    plain = [row(i, "N V", "N V", marked=False) for i in range(30)]
    assert compare(TEST, plain, plain, HOW).metric == "accuracy"
    with pytest.raises(UserError, match="'tags' of item r0 differs"):
        compare(TEST, right, plain, HOW)
