"""The test split sorted into buckets."""

from __future__ import annotations

from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.length_bucket import bucket
from lexmill.kinds.length_bucket.metrics import row, summarise
from lexmill.kinds.length_bucket.predict import buckets


def evaluate(subject: Subject) -> Evaluated:
    """All of it."""
    found = rows(subject)
    texts = [record["text"] for record in subject.corpus.records("test")]
    samples = [{"text": text, **one} for text, one in zip(texts, found, strict=True)][:5]
    metrics = summarise(found, subject.corpus.unit, Resampling.of(subject.evaluation, subject.seed))
    return Evaluated(rows=found, metrics=metrics, samples={"samples": samples})


def rows(subject: Subject) -> list[Row]:
    """The rows alone."""
    records, config = list(subject.corpus.records("test")), subject.config
    texts = [record["text"] for record in records]
    found = buckets(subject.module, subject.tokenizer, texts, config["max_tokens"])
    return [
        row(record, bucket(record["text"], config["long_from"]), one)
        for record, one in zip(records, found, strict=True)
    ]
