"""Questions about the words of a test set, their answers beside a loop, and the metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation import analogies
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.significance import compare
from lexmill.evaluation.word_vectors import WordVectors
from lexmill.kinds.word_vectors import questions as module
from lexmill.kinds.word_vectors.metrics import TEST, summarise, worst
from lexmill.kinds.word_vectors.questions import Question, Questions, answered, questions
from tests.kinds.word_vectors.made_text import FIRST, tokenizer
from tests.support.prepared import write_prepared

NOUNS = ["king", "lord", "tree", "hand", "ship"]
FORMS = [f"{noun}s" for noun in NOUNS]
OTHERS = ["walk", "walked", "walking", "sky", "sea"]
EVERY = [*NOUNS, *FORMS, *OTHERS]
HOW = Resampling(samples=50, confidence=0.95, seed=0)


def corpus(folder: Path, test: str, language: str = "en") -> PreparedCorpus:
    write_prepared(
        folder / "corpus", "text", {"train": [{"text": "sword swords"}], "test": [{"text": test}]}, (language,)
    )
    return PreparedCorpus(folder / "corpus")


def random_embeddings(width: int) -> np.ndarray:
    """A form is its word plus one shift, and as much noise."""
    random = np.random.default_rng(1)
    found = random.standard_normal((FIRST + len(EVERY), width)).astype(np.float32)
    noise, shift = random.standard_normal((len(NOUNS), width)), random.standard_normal(width)
    found[FIRST + len(NOUNS) : FIRST + 2 * len(NOUNS)] = found[FIRST : FIRST + len(NOUNS)] + shift + noise
    return found


def test_each_two_pairs_of_a_rule_make_a_question_of_the_test_sets_words(tmp_path: Path) -> None:
    found = questions(corpus(tmp_path, "king kings, lord lords; walk walked walking"), "test")
    assert found.asked == [
        Question("plural", "king", "kings", "lord", "lords"),
        Question("plural", "lord", "lords", "king", "kings"),
    ]
    assert set(found.words) == {"king", "kings", "lord", "lords", "walk", "walked", "walking"}


@pytest.mark.parametrize(("text", "language"), [("king kings queen", "en"), ("king kings lord lords", "de")])
def test_no_question_is_an_error(tmp_path: Path, text: str, language: str) -> None:
    with pytest.raises(UserError, match=f"no analogy can be made of .* of the test split in '{language}'"):
        questions(corpus(tmp_path, text, language), "test")


def test_answers_are_those_of_a_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 7)
    found = questions(corpus(tmp_path, " ".join(EVERY)), "test")
    words, embeddings = tokenizer(EVERY), random_embeddings(5)
    vectors = WordVectors(found.words, words, embeddings)
    rows = answered(found, words, embeddings)
    assert len(rows) == len(found.asked) == 20
    for row, one in zip(rows, found.asked, strict=True):
        nearest = [word for word, _ in vectors.neighbours([(1, one.form), (-1, one.word), (1, one.third)], 99)]
        assert row["predicted"] == nearest[0]
        assert row["rank"] == nearest.index(one.answer) + 1
        assert (row["group"], row["answer"]) == (f"plural: {one.third}", one.answer)
    assert len({row["id"] for row in rows}) == 20
    assert len({row["rank"] for row in rows}) > 2
    # The same questions as those beside which a language model's embeddings are scored.
    score = analogies.score(found.words, words, embeddings, analogies.pairs(found.words, "en"))
    assert summarise(rows, HOW)["analogy_accuracy"] == score["analogy_accuracy"] > 0
    assert score["analogy_questions"] == 20


def test_a_question_with_an_unknown_word_is_not_answered(tmp_path: Path) -> None:
    found = questions(corpus(tmp_path, " ".join(EVERY)), "test")
    known = tokenizer([word for word in EVERY if word != "ships"])
    rows = answered(found, known, random_embeddings(5)[:-1])
    assert len(rows) == 20, "the same questions for every tokenizer"
    unknown = [row for row, one in zip(rows, found.asked, strict=True) if "ships" in (one.form, one.answer)]
    assert [(row["predicted"], row["rank"]) for row in unknown] == [(None, 0)] * 8
    assert all(row["rank"] for row in rows if row not in unknown)
    assert summarise(rows, HOW)["unknown"] == 8


def test_equal_scores_go_to_the_first_word() -> None:
    """Without width all scores are equal: the first word that is not of the question is answered."""
    asked = [Question("plural", "king", "kings", "lord", "lords"), Question("plural", "lord", "lords", "king", "kings")]
    words = ["king", "sea", "kings", "sky", "lord", "lords"]
    rows = answered(Questions(asked, words), tokenizer(words), np.zeros((FIRST + len(words), 2), np.float32))
    assert [(row["predicted"], row["rank"]) for row in rows] == [("sea", 3), ("sea", 2)]


def rows_of(ranks: list[int], rules: int = 1) -> list[dict[str, object]]:
    return [
        {"id": f"{i}", "group": f"g{i // 2}", "rule": f"r{i % rules}", "answer": "a", "predicted": "a", "rank": rank}
        for i, rank in enumerate(ranks)
    ]


def test_metrics_by_hand() -> None:
    found = summarise(rows_of([1, 2, 4, 0], rules=2), HOW)
    assert found["analogy_accuracy"] == 1 / 4
    assert found["mean_reciprocal_rank"] == (1 + 1 / 2 + 1 / 4) / 4
    assert (found["r0_accuracy"], found["r1_accuracy"]) == (1 / 2, 0)
    assert (found["questions"], found["unknown"], found["interval_unit"]) == (4, 1, "question")
    assert found["analogy_accuracy_low"] <= 1 / 4 <= found["analogy_accuracy_high"]
    assert summarise(rows_of([1] * 40), HOW)["interval_unit"] == "pair asked for"
    with pytest.raises(UserError, match="no question to answer"):
        summarise([], HOW)


def test_the_worst_have_the_largest_ranks() -> None:
    assert [row["rank"] for row in worst(rows_of([3, 0, 9, 1]), 2)] == [9, 3]


def test_two_models_are_compared_on_the_same_questions() -> None:
    better, worse = rows_of([1] * 60), rows_of([1, 2] * 30)
    found = compare(TEST, better, worse, Resampling(200, 0.95, 1))
    assert (found.metric, found.difference, found.better, found.units) == ("analogy_accuracy", 0.5, True, 30)
    assert found.p_value < 0.01
    assert compare(TEST, worse, better, HOW, metric="mean_reciprocal_rank").difference == -0.25
    assert set(TEST.slices(rows_of([1, 2, 3], rules=2))) == {"rule r0", "rule r1"}
    with pytest.raises(UserError, match="different items"):
        compare(TEST, better, [{**row, "answer": "b"} for row in worse], HOW)
