"""Evaluates a chat model on a test split: metrics, and answers beside those of the data.

Cost: 1 / (1 - evaluation.overlap) forward passes over the test split, twice that with rejected answers; memory
O(evaluation.batch_tokens * vocabulary).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lexmill.base import progress
from lexmill.decoding.settings import Sampling
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.scoring import NetworkScorer
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.chat_model.metrics import score, summarise
from lexmill.kinds.chat_model.replies import replies

SAMPLES = 8


def evaluate(subject: Subject) -> Evaluated:
    """Score the test split, and answer some of it."""
    found, records = rows(subject), list(subject.records())
    shown = [records[i] for i in spread(len(records), SAMPLES)]
    sampling = Sampling(subject.settings.max_tokens, temperature=0)
    answers = replies(subject.module, subject.tokenizer, [record["messages"][:-1] for record in shown], sampling)
    samples = [
        {
            "prompt": record["messages"][-2]["content"],
            "expected": record["messages"][-1]["content"],
            "answer": answer,
        }
        for record, answer in zip(shown, answers, strict=True)
    ]
    return Evaluated(rows=found, metrics=metrics(subject, found), samples={"samples": samples})


def rows(subject: Subject) -> list[Row]:
    """Return one row for each conversation, in order."""
    module, evaluation = cast(Any, subject.module), subject.evaluation
    scorer = NetworkScorer(
        module, module.context, subject.tokenizer.eos_id, evaluation.batch_tokens, evaluation.overlap
    )
    found = []
    with progress.bar(f"evaluate {subject.words}", subject.corpus.count(subject.split)) as bar:
        for row in score(subject.records(), subject.tokenizer, scorer):
            found.append(row)
            bar.update(1)
    return found


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling)
