"""Evaluates word vectors on analogies made of a test set's words; shows the nearest words of some.

Cost: seconds; see `questions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.evaluation.word_vectors import Floats, WordVectors
from lexmill.kinds.word_vectors.metrics import summarise, worst
from lexmill.kinds.word_vectors.predict import NEAREST, nearest
from lexmill.kinds.word_vectors.questions import answered, questions
from lexmill.models.input_embeddings import input_embeddings

SAMPLES, WORST = 12, 20
SHOWN_AMONG = 1000  # the most frequent words of a test set


def evaluate(subject: Subject) -> Evaluated:
    """Answer the questions."""
    asked, embeddings = questions(subject.corpus, subject.split), _embeddings(subject)
    found = answered(asked, subject.tokenizer, embeddings)
    vectors = WordVectors(asked.words, subject.tokenizer, embeddings)
    shown = [vectors.words[i] for i in spread(min(len(vectors.words), SHOWN_AMONG), SAMPLES)]

    return Evaluated(
        rows=found,
        metrics=metrics(subject, found),
        samples={
            "samples": [{"text": word, "neighbours": nearest(vectors, [word], NEAREST)} for word in shown],
            "worst": worst(found, WORST),
        },
    )


def rows(subject: Subject) -> list[Row]:
    """Return one row per question, in order."""
    return answered(questions(subject.corpus, subject.split), subject.tokenizer, _embeddings(subject))


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.resampling)


def _embeddings(subject: Subject) -> Floats:
    return input_embeddings(subject.module.state_dict())
