"""Evaluates a regressor on a test split. Cost: one forward pass over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lexmill.base import progress
from lexmill.corpora.prepared import shown
from lexmill.data.texts import of_record
from lexmill.evaluation import plots
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.regressor.metrics import regressor_row, summarise, worst
from lexmill.kinds.regressor.predict import rate
from lexmill.kinds.regressor.scale import number_of

SAMPLES, WORST = 20, 20
CHUNK = 512  # texts between progress updates; an answer does not depend on the texts around it


def evaluate(subject: Subject) -> Evaluated:
    """Rate the test split."""
    records, found = list(subject.records()), rows(subject)

    def draw(folder: Path) -> None:
        right, predicted = (np.array([row[key] for row in found]) for key in ("number", "predicted"))
        plots.plot_numbers(right, predicted, folder / "numbers.png", subject.name)

    return Evaluated(
        rows=found,
        metrics=metrics(subject, found),
        samples={
            "samples": [_sample(records[i], found[i]) for i in spread(len(found), SAMPLES)],
            "worst": [_sample(records[i], found[i]) for i in worst(found, WORST)],
        },
        draw=draw,
    )


def rows(subject: Subject) -> list[Row]:
    """Return one row per record, in order; raise `UserError` where a label is no number."""
    records = list(subject.records())
    found: list[Row] = []
    with progress.bar(f"evaluate {subject.words}", len(records)) as bar:
        for start in range(0, len(records), CHUNK):
            some = records[start : start + CHUNK]
            texts = [of_record(record) for record in some]
            numbers = rate(subject.module, subject.tokenizer, texts, subject.config, subject.evaluation.batch_tokens)
            found += [
                regressor_row(record, number_of(record["label"], subject.corpus), float(number))
                for record, number in zip(some, numbers, strict=True)
            ]
            bar.update(len(some))
    return found


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling, subject.config["levels"])


def _sample(record: dict[str, str], row: Row) -> dict[str, Any]:
    return {"text": shown(record), "number": row["number"], "predicted": row["predicted"]}
