"""Evaluates a tagger on a test split: metrics, confusions, worst errors. Cost: one forward pass over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexmill.base import progress
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.tagger.metrics import confusion_counts, per_class, summarise, tagger_row, worst
from lexmill.kinds.tagger.predict import tag_sentences

SAMPLES, WORST = 12, 12
_CHUNK = 512  # sentences between progress updates; an answer does not depend on the sentences around it


def evaluate(subject: Subject) -> Evaluated:
    """Tag the test split."""
    records, found = list(subject.records()), rows(subject)
    return Evaluated(
        rows=found,
        metrics=metrics(subject, found),
        samples={
            "samples": [sample(records[i], found[i]) for i in spread(len(found), SAMPLES)],
            "worst": [sample(records[i], found[i]) for i in worst(found, WORST)],
        },
        more={"confusion": confusion_counts(found), "per_class": per_class(found)},
    )


def rows(subject: Subject) -> list[Row]:
    """Return one row per record, in order."""
    config, records = subject.config, list(subject.records())
    found: list[Row] = []
    with progress.bar(f"evaluate {subject.words}", len(records)) as bar:
        for start in range(0, len(records), _CHUNK):
            chunk = records[start : start + _CHUNK]
            sentences = [record["words"] for record in chunk]
            tags = tag_sentences(subject.module, subject.tokenizer, sentences, config, subject.evaluation.batch_tokens)
            marked = config["scheme"] != "none"
            found += [tagger_row(record, one, marked=marked) for record, one in zip(chunk, tags, strict=True)]
            bar.update(len(chunk))
    return found


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling)


def sample(record: dict[str, Any], row: Row) -> dict[str, Any]:
    """Return an item for people: its words, the right tags and the predicted ones."""
    return {"words": record["words"], "tags": row["tags"], "predicted": row["predicted"]}
