"""Evaluates a multi-label classifier on a test split. Cost: one forward pass over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexmill.base import progress
from lexmill.corpora.prepared import labels_of, shown
from lexmill.data.texts import of_record, read
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.multilabel_classifier.metrics import multilabel_row, per_label, summarise, worst
from lexmill.kinds.multilabel_classifier.predict import labelled, probabilities

SAMPLES, WORST = 20, 20
CHUNK = 512  # texts between progress updates; an answer does not depend on the texts around it


def evaluate(subject: Subject) -> Evaluated:
    """Label the test split."""
    records, found = list(subject.records()), rows(subject)

    def items(places: Sequence[int]) -> list[dict[str, Any]]:
        return [
            {"text": shown(records[i]), "labels": found[i]["labels"], "predicted": found[i]["predicted"]}
            for i in places
        ]

    return Evaluated(
        rows=found,
        metrics=metrics(subject, found),
        samples={"samples": items(spread(len(found), SAMPLES)), "worst": items(worst(found, WORST))},
        more={"per_class": per_label(found)},
    )


def rows(subject: Subject) -> list[Row]:
    """Return one row per record, in order."""
    config, records = subject.config, list(subject.records())
    found: list[Row] = []
    with progress.bar(f"evaluate {subject.words}", len(records)) as bar:
        for start in range(0, len(records), CHUNK):
            some = records[start : start + CHUNK]
            texts = read(subject.tokenizer, [of_record(record) for record in some], config)
            chances = probabilities(subject.module, texts, subject.evaluation.batch_tokens)
            for record, row in zip(some, chances, strict=True):
                answer = labelled(config, row)
                right = labels_of(record["label"])
                found.append(multilabel_row(record, right, answer["scores"], answer["labels"]))
            bar.update(len(some))
    return found


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling)
