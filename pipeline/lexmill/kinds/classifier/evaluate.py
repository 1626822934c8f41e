"""Evaluates a classifier on a test split: metrics, confusions, worst errors. Cost: one forward pass over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lexmill.base import progress
from lexmill.corpora.prepared import shown
from lexmill.data.texts import of_record
from lexmill.evaluation import plots
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.classifier.attention import attention
from lexmill.kinds.classifier.attribution import words
from lexmill.kinds.classifier.calibration import bins
from lexmill.kinds.classifier.metrics import (
    all_labels,
    classifier_row,
    confidences,
    confusion,
    confusion_counts,
    per_class,
    row_loss,
    summarise,
    worst,
)
from lexmill.kinds.classifier.predict import classify_texts
from lexmill.kinds.classifier.telling import telling

SAMPLES, WORST, EXPLAINED = 20, 20, 8
CHUNK = 512  # texts between progress updates; an answer does not depend on the texts around it


def evaluate(subject: Subject) -> Evaluated:
    """Classify the test split."""
    records, found = list(subject.records()), rows(subject)

    def draw(folder: Path) -> None:
        labels = all_labels(found)
        plots.plot_confusion(confusion(found, labels), labels, folder / "confusion.png", subject.name)
        plots.plot_reliability(bins(*confidences(found)), folder / "reliability.png", subject.name)
        texts = [of_record(records[i]) for i in spread(len(found), SAMPLES)]
        if pictured := attention(subject.module, subject.tokenizer, texts, subject.config):
            heads = ("last layer, mean over heads", "rollout through all layers")
            plots.plot_attention(pictured, heads, folder / "attention.png", subject.name)

    return Evaluated(
        rows=found,
        metrics=metrics(subject, found),
        samples={
            "samples": _explained(subject, records, found, spread(len(found), SAMPLES)),
            "worst": _explained(subject, records, found, worst(found, WORST)),
            **telling_features(subject),
        },
        more={"confusion": confusion_counts(found), "per_class": per_class(found)},
        draw=draw,
    )


def _explained(
    subject: Subject, records: Sequence[dict[str, str]], found: Sequence[Row], places: Sequence[int]
) -> list[dict[str, Any]]:
    """Return items for people; the first `EXPLAINED` have what each word adds to the prediction."""
    items = [sample(records[i], found[i]) for i in places]
    labels = subject.config["labels"]
    for item, i in zip(items[:EXPLAINED], places, strict=False):
        text, label = of_record(records[i]), labels.index(found[i]["predicted"])
        if (added := words(subject.module, subject.tokenizer, text, label, subject.config)) is not None:
            item["words"] = added
    return items


def rows(subject: Subject) -> list[Row]:
    """Return one row per record, in order."""
    config, records = subject.config, list(subject.records())
    found: list[Row] = []
    with progress.bar(f"evaluate {subject.words}", len(records)) as bar:
        for start in range(0, len(records), CHUNK):
            chunk = records[start : start + CHUNK]
            texts = [of_record(record) for record in chunk]
            chances = classify_texts(subject.module, subject.tokenizer, texts, config, subject.evaluation.batch_tokens)
            found += [classifier_row(record, config["labels"], row) for record, row in zip(chunk, chances, strict=True)]
            bar.update(len(chunk))
    return found


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling, subject.config.get("threshold"))


def telling_features(subject: Subject) -> dict[str, Any]:
    """Return `telling`, for each label of a bag the n-grams that speak most for it; nothing for other models."""
    from lexmill.models.common.heads import BagClassifier

    if not isinstance(subject.module, BagClassifier):
        return {}
    return {"telling": telling(subject.module, subject.tokenizer, subject.config["labels"])}


def sample(record: dict[str, str], row: Row) -> dict[str, Any]:
    """Return an item for people: its text, the right label, the prediction with its score, the loss in nats."""
    return {
        "text": shown(record),
        "label": row["label"],
        "predicted": row["predicted"],
        "score": row["probabilities"][row["predicted"]],
        "loss": row_loss(row),
    }
