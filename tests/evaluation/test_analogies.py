"""Analogies from morphology: pairs by hand, the score beside a slow twin, and what spelling alone gives."""

from __future__ import annotations

import numpy as np
import pytest

from lexmill.evaluation import analogies
from lexmill.evaluation.analogies import inflected, pairs, score
from lexmill.evaluation.word_vectors import Signed, WordVectors
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.kinds import assemble, word_model, wordpiece_model

FOUND = {"plural": [("king", "kings"), ("lord", "lords"), ("tree", "trees")], "past": [("walk", "walked")]}
WORDS = ["king", "kings", "lord", "lords", "tree", "trees", "walk", "walked", "sky", "sea"]


def test_endings_by_hand() -> None:
    found = {word: [inflected(word, ending) for ending in ("s", "ed", "ing")] for word in ("walk", "love", "carry")}
    assert found == {
        "walk": ["walks", "walked", "walking"],
        "love": ["loves", "loved", "loving"],
        "carry": ["carries", "carried", "carrying"],
    }
    assert [inflected(word, "er") for word in ("high", "wise", "happy")] == ["higher", "wiser", "happier"]
    assert [inflected(word, "s") for word in ("box", "kiss", "church", "day")] == [
        "boxes",
        "kisses",
        "churches",
        "days",
    ]


def test_pairs_of_a_made_list_by_hand() -> None:
    line = (
        "it its king walk walks walked kings walking wise wiser wisest numb number he hate hat hated hating"
        " lady ladies King Kings seed need see low lower"
    )
    words = line.split()
    assert pairs(words, "en-GB") == {
        "plural": [("king", "kings"), ("lady", "ladies")],  # "walks" is of a verb, "its" too short, "Kings" a name
        "past": [("walk", "walked"), ("hate", "hated")],  # "hat" is not of "hated"; no "seeing", so no "seed"
        "ing": [("walk", "walking"), ("hate", "hating")],
        "comparative": [("wise", "wiser")],  # without "numbest" and "lowest" no pair
    }


def test_a_rule_has_its_most_frequent_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analogies, "MOST_PAIRS", 1)
    assert pairs(["lord", "king", "kings", "lords"], "en")["plural"] == [("king", "kings")]


def test_a_language_without_rules_has_no_questions() -> None:
    assert pairs(WORDS, "de") == {}
    assert score(WORDS, *model(4), {}) == {}
    assert score(WORDS, *model(4), {"past": FOUND["past"]}) == {}  # a question needs two pairs


def model(width: int) -> tuple[Tokenizer, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    tokenizer = Tokenizer(assemble("word", word_model([f" {word}" for word in WORDS]), lowercase=False), "")
    return tokenizer, np.random.default_rng(5).normal(size=(tokenizer.vocab_size, width)).astype(np.float32)


def slow(vectors: WordVectors) -> dict[str, float]:
    """Each question by itself, through `neighbours`."""
    right, nearest, questions = 0, 0, 0
    for some in FOUND.values():
        for word, form in some:
            for third, answer in some:
                if third == word:
                    continue
                query: list[Signed] = [(1, form), (-1, word), (1, third)]
                right += vectors.neighbours(query, 1)[0][0] == answer
                alone = [found for found, _ in vectors.neighbours([(1, third)], 9) if found not in (word, form)]
                nearest += alone[0] == answer
                questions += 1
    return {
        "analogy_questions": questions,
        "analogy_accuracy": right / questions,
        "analogy_nearest": nearest / questions,
    }


@pytest.mark.parametrize("width", [2, 3, 6])
def test_the_score_beside_the_slow_twin(width: int) -> None:
    tokenizer, embeddings = model(width)
    found = score(WORDS, tokenizer, embeddings, FOUND)
    assert found.pop("analogy_spelling") <= 1
    assert found == slow(WordVectors(WORDS, tokenizer, embeddings))
    assert found["analogy_questions"] == 6


def test_forms_at_one_offset_are_all_right() -> None:
    tokenizer, embeddings = model(40)
    for i in (6, 8, 10):
        embeddings[i] = embeddings[i - 1]
        embeddings[i, 0] += 9
    found = score(WORDS, tokenizer, embeddings, FOUND)
    assert found["analogy_accuracy"] == 1
    assert found["analogy_spelling"] < 0.5


def test_spelling_alone_solves_analogies_of_words_with_shared_tokens() -> None:
    """ "kings" is " king" and "##s" for random embeddings too, so the baseline must know of it."""
    words = ["king", "kings", "lord", "lords", "tree", "trees"]
    pieces = wordpiece_model([" king", " lord", " tree", "##s", "a"])
    tokenizer = Tokenizer(assemble("wordpiece", pieces, lowercase=False), "")
    embeddings = np.random.default_rng(0).normal(size=(tokenizer.vocab_size, 64)).astype(np.float32)
    assert score(words, tokenizer, embeddings, FOUND)["analogy_spelling"] == 1
