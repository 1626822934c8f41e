"""Word vectors on embeddings made by hand: exact sums of words, and beside slow twins."""

import numpy as np
import pytest
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.evaluation.word_vectors import Signed, WordVectors, plane
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.kinds import assemble, word_model, wordpiece_model
from tests.support.royal import ROYAL, embeddings


def royal() -> WordVectors:
    tokenizer = Tokenizer(assemble("word", word_model([f" {word}" for word in ROYAL]), lowercase=False), "")
    return WordVectors(list(ROYAL), tokenizer, embeddings(8))


def random_words(count: int, width: int) -> WordVectors:
    names = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(count)]
    tokenizer = Tokenizer(assemble("word", word_model([f" {name}" for name in names]), lowercase=False), "")
    drawn = np.random.default_rng(3).normal(1.0, 1.0, (tokenizer.vocab_size, width)).astype(np.float32)
    return WordVectors(names, tokenizer, drawn)


def test_king_without_man_with_woman_is_queen() -> None:
    ((word, cosine), (_, second), *_) = royal().neighbours([(1, "king"), (-1, "man"), (1, "woman")], 3)
    assert word == "queen"
    assert cosine == pytest.approx(1.0, abs=1e-6)
    assert second < 0.9


def test_the_nearest_of_one_word_by_hand() -> None:
    """king shares half of its vector with man and with queen; equal cosines come in the words' order."""
    found = royal().neighbours([(1, "king")], 3)
    assert [word for word, _ in found] == ["queen", "man", "woman"]
    assert [cosine for _, cosine in found] == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)


def test_what_all_embeddings_share_changes_no_neighbour() -> None:
    tokenizer = Tokenizer(assemble("word", word_model([f" {word}" for word in ROYAL]), lowercase=False), "")
    shared = np.full(8, 50.0, np.float32)
    moved = WordVectors(list(ROYAL), tokenizer, embeddings(8) + shared)
    np.testing.assert_allclose(moved.vectors, royal().vectors, atol=1e-5)
    raw = embeddings(8)[5:] + shared
    cosines = raw @ raw.T / np.outer(np.linalg.norm(raw, axis=1), np.linalg.norm(raw, axis=1))
    assert cosines.min() > 0.99  # without the mean removed, all are alike


def slow(vectors: WordVectors, query: list[Signed]) -> list[tuple[str, float]]:
    """3CosAdd, word by word."""
    whole: NDArray[np.float64] = np.zeros(vectors.vectors.shape[1])
    for sign, word in query:
        whole = whole + sign * vectors.vectors[vectors.words.index(word)].astype(np.float64)
    found = []
    for word, vector in zip(vectors.words, vectors.vectors, strict=True):
        if word not in [asked for _, asked in query]:
            product = sum(float(a) * float(b) for a, b in zip(vector, whole, strict=True))
            found.append((word, product / float(np.sqrt((whole**2).sum()))))
    return sorted(found, key=lambda one: -one[1])


def test_sums_of_words_beside_the_slow_twin() -> None:
    vectors = random_words(60, 7)
    for query in ([(1, "ab")], [(1, "ab"), (-1, "ac"), (1, "bb")], [(-1, "aa"), (-1, "ad")]):
        found, expected = vectors.neighbours(query, 1000), slow(vectors, query)
        assert [word for word, _ in found] == [word for word, _ in expected]
        assert [cosine for _, cosine in found] == pytest.approx([cosine for _, cosine in expected], abs=1e-5)
    assert vectors.neighbours([(1, "ab")], 3) == vectors.neighbours([(1, "ab")], 1000)[:3]


def test_a_words_vector_is_the_mean_of_its_tokens() -> None:
    tokenizer = Tokenizer(assemble("wordpiece", wordpiece_model([" king", "##s", " man", "a"]), lowercase=False), "")
    table = np.arange(2 * tokenizer.vocab_size, dtype=np.float32).reshape(-1, 2) ** 2
    vectors = WordVectors(["king", "man", "kings"], tokenizer, table)
    king, s, man = table[5:8]
    mean = (king + man + (king + s) / 2) / 3
    for word, raw in (("king", king), ("man", man), ("kings", (king + s) / 2)):
        expected = (raw - mean) / np.linalg.norm(raw - mean)
        np.testing.assert_allclose(vectors.vector(word), expected, rtol=1e-5)
        np.testing.assert_allclose(vectors.vectors[vectors.words.index(word)], expected, rtol=1e-5)


def test_words_that_the_tokenizer_does_not_tell_apart_are_one() -> None:
    tokenizer = Tokenizer(assemble("word", word_model([" king", " queen", " man"]), lowercase=True), "")
    vectors = WordVectors(["King", "king", "queen", "knave", "man"], tokenizer, embeddings(8))
    assert vectors.words == ["king", "queen", "man"]  # and one that it does not know is none
    assert {word for word, _ in vectors.neighbours([(1, "KING")], 9)} == {"queen", "man"}
    assert [vectors.knows(word) for word in ("KING", "man", "knave", "")] == [True, True, False, False]


def test_errors() -> None:
    vectors = royal()
    with pytest.raises(UserError, match="does not know the word 'xyzzy'"):
        vectors.neighbours([(1, "xyzzy")], 1)
    with pytest.raises(UserError, match="does not know the word ''"):
        vectors.vector("")
    with pytest.raises(UserError, match="cancel each other"):
        vectors.neighbours([(1, "king"), (-1, "king")], 1)
    with pytest.raises(UserError, match="not Unicode"):
        vectors.vector("\ud800")
    tokenizer = Tokenizer(assemble("word", word_model([" king"]), lowercase=False), "")
    for words in (["king", "queen"], []):
        with pytest.raises(UserError, match="knows fewer than two words"):
            WordVectors(words, tokenizer, embeddings(8)).neighbours([(1, "king")], 1)


def test_the_plane_of_points_on_two_axes_by_hand() -> None:
    points = np.array([[3, 0, 0], [-3, 0, 0], [0, 0, 1], [0, 0, -1]], np.float32) + 5
    np.testing.assert_allclose(np.abs(plane(points)), [[3, 0], [3, 0], [0, 1], [0, 1]], atol=1e-5)


def test_the_plane_beside_the_eigenvectors_of_the_covariance() -> None:
    drawn = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    centred = drawn - drawn.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    expected = centred @ directions[:, [-1, -2]]
    found = plane(drawn)
    for axis in (0, 1):
        assert found[np.abs(found[:, axis]).argmax(), axis] > 0
        sign = np.sign(found[0, axis] * expected[0, axis])
        np.testing.assert_allclose(found[:, axis], sign * expected[:, axis], atol=1e-4)
