"""Evaluates an answerer on a test split. Cost: a forward pass over the windows of each question."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lexmill.base import progress
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.answerer import metrics as measured
from lexmill.kinds.answerer.predict import Span, spans
from lexmill.kinds.answerer.windows import Sizes

SAMPLES, WORST = 12, 12
_CHUNK = 64  # questions between progress updates; an answer does not depend on the questions around it


def evaluate(subject: Subject) -> Evaluated:
    """Answer the questions of the test split."""
    records, given = list(subject.records()), _answers(subject)
    found = [measured.row(record, one.text) for record, one in zip(records, given, strict=True)]
    samples = [_sample(record, one, given[i]) for i, (record, one) in enumerate(zip(records, found, strict=True))]
    worst = sorted(range(len(found)), key=lambda i: (found[i]["f1"], -given[i].score, i))[:WORST]
    return Evaluated(
        rows=found,
        metrics=metrics(subject, found),
        samples={
            "samples": [samples[i] for i in spread(len(samples), SAMPLES)],
            "worst": [samples[i] for i in worst if found[i]["f1"] < 1],
        },
    )


def rows(subject: Subject) -> list[Row]:
    """Return one row per question, in order."""
    return [measured.row(record, one.text) for record, one in zip(subject.records(), _answers(subject), strict=True)]


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return measured.summarise(rows, subject.corpus.unit, subject.resampling)


def _answers(subject: Subject) -> list[Span]:
    """Return the answer that is given to each question."""
    records, sizes = list(subject.records()), Sizes.of(subject.config)
    found: list[Span] = []
    with progress.bar(f"evaluate {subject.words}", len(records)) as bar:
        for start in range(0, len(records), _CHUNK):
            pairs = [(record["question"], record["context"]) for record in records[start : start + _CHUNK]]
            found += spans(subject.module, subject.tokenizer, pairs, sizes, subject.evaluation.batch_tokens)
            bar.update(len(pairs))
    return [one.given(subject.config["threshold"]) for one in found]


def _sample(record: dict[str, Any], one: Row, given: Span) -> dict[str, Any]:
    """Return a question for people; `input` and `output` are those of the predictor."""
    return {
        "input": json.dumps({key: record[key] for key in ("question", "context")}, ensure_ascii=False),
        "output": given.shown(),
        "question": record["question"],
        "context": record["context"],
        "answers": list(dict.fromkeys(one["answers"])),
        "predicted": one["predicted"],
        "f1": one["f1"],
        "score": given.score,
    }
