"""Multi-label classifiers: any number of labels for a text, none among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.params.adaptation import Adaptation
from lexmill.params.labelled import LabelledTexts, long_text_words
from lexmill.params.models import Model, NoSettings


@dataclass(frozen=True)
class MultiLabel(Adaptation):
    """A recipe with the head's dropout and where a label begins to be given."""

    head_dropout: float = spec("dropout before the head", 0.1, low=0, below=1)
    thresholds: Literal["half", "tuned"] = spec(
        "a label is given from this probability on: 0.5, or each label's with the highest F1 on valid", "tuned"
    )


@dataclass(frozen=True)
class MultiLabelClassifier(Model):
    """A multi-label classifier on an encoder."""

    data: LabelledTexts = spec("what it learns from")
    recipe: MultiLabel = spec("how it is trained")
    evaluate: NoSettings = spec("how it is evaluated")


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "It knows only the labels of its corpus, and decides on each alone.",
        long_text_words(entry["data"]),
    )


KIND = Kind(
    name="multilabel_classifier",
    words="multi-label classifier",
    does="gives a text each of its labels, or none, with a score for each",
    verb="label",
    corpus="labelled",
    label_form="set",
    entry=MultiLabelClassifier,
    role="encoder",
    both_directions=True,
    metrics=(
        Metric("micro_f1", "micro F1", higher_is_better=True),
        Metric("macro_f1", "macro F1", higher_is_better=True),
        Metric("exact_match", "exact match", higher_is_better=True),
    ),
    counted="texts",
    inputs=lambda entry: Inputs(layout.corpus(entry["data"]["corpus"]).as_posix()),
    facts=lambda entry: [("longest text", f"{entry.data.max_tokens:,} tokens")],
    example=lambda sample: (sample["text"], {"labels": sample["predicted"]}),
    limits=_limits,
)
