"""Evaluates word vectors on analogies made of a test set's words; shows the nearest words of some, and a map.

Cost: seconds; see `questions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lexmill.evaluation import plots
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.evaluation.word_vectors import Floats, WordVectors, plane
from lexmill.kinds.word_vectors.metrics import summarise, worst
from lexmill.kinds.word_vectors.predict import NEAREST, nearest
from lexmill.kinds.word_vectors.questions import answered, questions
from lexmill.models.input_embeddings import input_embeddings

SAMPLES, WORST = 12, 20
SHOWN_AMONG, DRAWN_WORDS = 1000, 400  # the most frequent of a test set: of the samples, and of the picture


def evaluate(subject: Subject) -> Evaluated:
    """Answer the questions."""
    asked, embeddings = questions(subject.corpus, subject.split), _embeddings(subject)
    found = answered(asked, subject.tokenizer, embeddings)
    vectors = WordVectors(asked.words, subject.tokenizer, embeddings)
    shown = [vectors.words[i] for i in spread(min(len(vectors.words), SHOWN_AMONG), SAMPLES)]

    def draw(folder: Path) -> None:
        drawn = WordVectors(asked.words[:DRAWN_WORDS], subject.tokenizer, embeddings)
        if len(drawn.words) > 2:
            plots.plot_words(plane(drawn.vectors), drawn.words, folder / "words.png", subject.name)

    return Evaluated(
        rows=found,
        metrics=metrics(subject, found),
        samples={
            "samples": [{"text": word, "neighbours": nearest(vectors, [word], NEAREST)} for word in shown],
            "worst": worst(found, WORST),
        },
        draw=draw,
    )


def rows(subject: Subject) -> list[Row]:
    """Return one row per question, in order."""
    return answered(questions(subject.corpus, subject.split), subject.tokenizer, _embeddings(subject))


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.resampling)


def _embeddings(subject: Subject) -> Floats:
    return input_embeddings(subject.module.state_dict())
