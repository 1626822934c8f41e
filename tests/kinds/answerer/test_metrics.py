"""Exact match and F1 by hand and beside a slow twin of SQuAD 2.0's definition; intervals; paired tests."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.significance import compare
from lexmill.kinds.answerer.metrics import TEST, f1, normal, row, scores, slices, summarise

HOW = Resampling(samples=200, confidence=0.9, seed=1)


def twin_normal(text: str) -> str:
    """Lower case, then no punctuation, then no articles, then single spaces: character by character."""
    kept = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def twin_f1(predicted: str, answer: str) -> float:
    """Precision and recall over words, each word of one matched with at most one of the other."""
    ours, theirs = twin_normal(predicted).split(), twin_normal(answer).split()
    if len(ours) == 0 or len(theirs) == 0:
        return float(ours == theirs)
    left, same = list(theirs), 0
    for word in ours:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return 0.0
    precision, recall = same / len(ours), same / len(theirs)
    return 2 * precision * recall / (precision + recall)


def twin_scores(predicted: str, answers: list[str]) -> tuple[float, float]:
    """The best over the answers that have words; [""] in place of none."""
    gold = [answer for answer in answers if twin_normal(answer)]
    if not gold:
        gold = [""]
    exact = max(int(twin_normal(predicted) == twin_normal(answer)) for answer in gold)
    return float(exact), max(twin_f1(predicted, answer) for answer in gold)


@pytest.mark.parametrize(
    ("predicted", "answers", "exact", "value"),
    [
        ("The Broncos!", ["broncos"], 1, 1),
        ("Denver Broncos", ["the Broncos", "a Denver   Broncos team"], 0, 0.8),  # 2 of 2 and 2 of 3 words
        ("308 points", ["308"], 0, 2 / 3),
        ("to be or not to be", ["to be"], 0, 0.5),  # 2 of 6 and 2 of 2 words: repeated ones count once each
        ("theatre and an A-team", ["theatre", "ateam and theatre"], 0, 1),  # articles go; any order of words
        ("U.S.A.", ["usa"], 1, 1),
        ("\u201cquoted\u201d", ["quoted"], 0, 0),  # only the punctuation of ASCII goes
        ("", ["x"], 0, 0),
        ("", [], 1, 1),
        ("x", [], 0, 0),
        ("", ["the"], 1, 1),  # no words: no answer
        ("a", ["The.", "b"], 0, 0),
        ("the", [], 1, 1),
    ],
)
def test_scores_by_hand(predicted: str, answers: list[str], exact: int, value: float) -> None:
    assert scores(predicted, answers) == (exact, pytest.approx(value))
    assert twin_scores(predicted, answers) == (exact, pytest.approx(value))


_PIECES = ["a", "the", "an", "b", "C", " ", "  ", ".", "-", "\t", "é", "\u2019", "x"]
_TEXTS = st.lists(st.sampled_from(_PIECES), max_size=9).map("".join)


@given(_TEXTS, st.lists(_TEXTS, max_size=3))
def test_scores_are_those_of_the_slow_twin(predicted: str, answers: list[str]) -> None:
    exact, value = twin_scores(predicted, answers)
    assert normal(predicted) == twin_normal(predicted)
    assert scores(predicted, answers) == (exact, pytest.approx(value))
    assert f1(predicted, predicted) == 1


def record(number: int, answers: list[str], context: str = "some words") -> dict[str, Any]:
    found = [{"text": text, "start": 0} for text in answers]
    return {
        "id": f"q{number}",
        "group": f"p{number // 2}",
        "question": f"{number}?",
        "context": context,
        "answers": found,
    }


def rows_of(predictions: list[str]) -> list[dict[str, Any]]:
    """One row each; every fourth question has no answer, the others have two."""
    return [row(record(i, [] if i % 4 == 3 else ["one two", "three"]), text) for i, text in enumerate(predictions)]


def test_the_metrics_of_a_set_by_hand() -> None:
    rows = rows_of(["one two", "two", "four", "", "three", "", "", "x"] * 10)
    found = summarise(rows, "paragraph", HOW)
    # Of eight: 1, 2/3, 0 and no answer rightly; 1, 0, 0 and an answer where there is none.
    assert found["f1"] == pytest.approx((1 + 2 / 3 + 1 + 1) / 8)
    assert found["exact_match"] == pytest.approx(3 / 8)
    assert found["has_answer_f1"] == pytest.approx((1 + 2 / 3 + 1) / 6)
    assert found["has_answer_exact_match"] == pytest.approx(2 / 6)
    assert found["no_answer_exact_match"] == pytest.approx(1 / 2)
    assert (found["questions"], found["without_answer"], found["interval_unit"]) == (80, 20, "paragraph")
    assert found["f1_low"] < found["f1"] < found["f1_high"]
    with pytest.raises(UserError, match="the test split is empty"):
        summarise([], "paragraph", HOW)


def test_a_set_in_which_all_have_answers_has_no_more_metrics() -> None:
    rows = [row(record(i, ["one"]), "one") for i in range(4)]
    found = summarise(rows, "paragraph", HOW)
    assert {key for key in found if not key.endswith(("_low", "_high"))} == {
        "f1",
        "exact_match",
        "interval_unit",
        "questions",
    }
    assert found["interval_unit"] == "question"  # two paragraphs are too few to draw


def test_two_models_are_compared_question_by_question() -> None:
    better, worse = rows_of(["one two"] * 120), rows_of(["two"] * 120)
    for metric, difference in (("f1", 0.75 * (1 - 2 / 3)), ("exact_match", 0.75)):
        found = compare(TEST, better, worse, HOW, metric=metric)
        assert (found.difference, found.better) == (pytest.approx(difference), True)
        assert found.p_value < 0.05
    assert compare(TEST, better, worse, HOW).metric == "f1"
    other = [{**one, "answers": ["another"]} for one in worse]
    with pytest.raises(UserError, match="'answers' of item q0 differs"):
        compare(TEST, better, other, HOW)


def test_slices_by_length_and_by_whether_there_is_an_answer() -> None:
    rows = [row(record(i, [] if i < 2 else ["w"], "w " * (i + 1)), "w") for i in range(9)]
    assert slices(rows) == {
        "short items": [0, 1, 2],
        "middle items": [3, 4, 5],
        "long items": [6, 7, 8],
        "without an answer": [0, 1],
        "with an answer": [2, 3, 4, 5, 6, 7, 8],
    }
    assert len(slices(rows[2:])) == 3
