"""Evaluates a sentence encoder on a test split. Cost: one pass over its texts, and the cosines of all its pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.sentence_encoder.metrics import rows_of, summarise, worst
from lexmill.kinds.sentence_encoder.predict import vectors
from lexmill.kinds.sentence_encoder.retrieval import belongs, of_vectors, pairs_of

SAMPLES, WORST = 20, 20


def evaluate(subject: Subject) -> Evaluated:
    """Compare the pairs of the test split."""
    records, found = list(subject.records()), rows(subject)

    def items(places: Sequence[int]) -> list[dict[str, Any]]:
        return [{key: records[i][key] for key in ("text", "second")} | _shown(found[i]) for i in places]

    return Evaluated(
        rows=found,
        metrics=metrics(subject, found),
        samples={"samples": items(spread(len(found), SAMPLES)), "worst": items(worst(found, WORST))},
    )


def _shown(row: Row) -> dict[str, Any]:
    return {key: row[key] for key in ("label", "cosine", "rank")}


def rows(subject: Subject) -> list[Row]:
    """Return one row per record, in order."""
    config, records = subject.config, pairs_of(subject.corpus, subject.split)
    first, second = (
        vectors(
            subject.module,
            subject.tokenizer,
            [record[side] for record in records],
            config["max_tokens"],
            subject.evaluation.batch_tokens,
        )
        for side in ("text", "second")
    )
    together = [i for i, record in enumerate(records) if belongs(record, config["positive"])]
    own = (first * second).sum(axis=1)
    return rows_of(records, config["positive"], own, of_vectors(first[together], second[together]))


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling)
