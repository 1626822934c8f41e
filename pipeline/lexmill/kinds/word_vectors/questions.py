"""Analogy questions about the words of a test set, and their answers.

The pairs of each rule are those of `lexmill.evaluation.analogies`; each two of them make a question: "friend is to
friends as king is to what?". Questions and candidates are words of the test set, whatever the tokenizer, so that all
models answer the same ones. A word that the tokenizer does not know makes a question wrong.

Cost: one product of all questions with all candidates; memory O(candidates) for `_BLOCK` questions at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation import analogies
from lexmill.evaluation.rows import Row
from lexmill.evaluation.word_vectors import Floats, WordVectors
from lexmill.evaluation.words import frequent_words
from lexmill.tokenizers import Tokenizer

WORDS = 10_000  # the most frequent of a test set
_BLOCK = 512


@dataclass(frozen=True)
class Question:
    """`word` is to `form` as `third` is to what? By the rule's name; the right answer is `answer`."""

    rule: str
    word: str
    form: str
    third: str
    answer: str


@dataclass(frozen=True)
class Questions:
    """The questions of a test set, and the words that may be answers, the most frequent first."""

    asked: Sequence[Question]
    words: Sequence[str]


def questions(corpus: PreparedCorpus, split: str) -> Questions:
    """Return the questions about the words of a split.

    Raises:
        UserError: there is none: the split is too small, or there are no rules for its language.
    """
    words, language = frequent_words(corpus, WORDS, split), corpus.languages[0]
    asked = [
        Question(rule, word, form, third, answer)
        for rule, some in analogies.pairs(words, language).items()
        for word, form in some
        for third, answer in some
        if third != word
    ]
    if not asked:
        raise UserError(
            f"no analogy can be made of the {len(words):,} words of the {split} split in '{language}': there must be"
            " two pairs as 'king, kings'; rules are there for English",
            corpus.folder,
        )
    return Questions(asked, words)


def answered(found: Questions, tokenizer: Tokenizer, embeddings: Floats) -> list[Row]:
    """Return one row for each question, in order.

    `predicted` is the word nearest to form - word + third by its cosine, without these three (3CosAdd, Mikolov et al.
    2013); `rank` is the place of the right answer among the nearest, from 1. They are None and 0 where a word of the
    question is unknown. The group is the pair that is asked for, as its questions are alike.

    Args:
        found: the questions.
        tokenizer: what spells the words.
        embeddings: (V, D).
    """
    vectors = WordVectors(found.words, tokenizer, embeddings)
    row_of = {word: row for row, word in enumerate(vectors.words)}
    place = np.array(
        [
            [row_of.get(tokenizer.normalize(word), -1) for word in (one.word, one.form, one.third, one.answer)]
            for one in found.asked
        ]
    )  # (Q, 4)
    rows = []
    for start in range(0, len(found.asked), _BLOCK):
        nearest, rank = _answers(vectors.vectors, place[start : start + _BLOCK])
        for one, best, at in zip(found.asked[start : start + _BLOCK], nearest, rank, strict=True):
            rows.append(
                {
                    "id": f"{one.rule}: {one.word} {one.form} {one.third}",
                    "group": f"{one.rule}: {one.third}",
                    "rule": one.rule,
                    "answer": one.answer,
                    "predicted": vectors.words[best] if at else None,
                    "rank": int(at),
                }
            )
    return rows


def _answers(vectors: Floats, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of the best candidate and the rank of the right one (0: unknown) of each question, (Q,).

    Args:
        vectors: (N, D), unit length.
        place: rows of word, form, third, answer, -1 where unknown, (Q, 4).
    """
    word, form, third, answer = place.T
    scores = (vectors[form] - vectors[word] + vectors[third]) @ vectors.T  # (Q, N)
    every = np.arange(len(place))
    for given in (word, form, third):
        scores[every, given] = -np.inf
    right = scores[every, answer]
    # Of equal scores the first counts, as argmax has it.
    ahead = (scores > right[:, None]).sum(axis=1)
    ahead += ((scores == right[:, None]) & (np.arange(len(vectors)) < answer[:, None])).sum(axis=1)
    return scores.argmax(axis=1), np.where((place >= 0).all(axis=1), ahead + 1, 0)
