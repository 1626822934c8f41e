"""Labels in the form that a reader says: names, numbers, or sets of names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lexmill.base.shown import value_text
from lexmill.corpora.prepared import BETWEEN_LABELS, NO_LABELS, labels_of
from lexmill.corpora.preparing.readers.columns import BadValue
from lexmill.params.corpora import Corpus
from lexmill.params.readers import FormedReader, LabelForm


class BadLabel(BadValue):
    """A label that is not of its reader's form; the message does not name the column."""


def in_form(label: str, form: LabelForm) -> str:
    """Return a label as a prepared corpus has it.

    Raises:
        BadLabel: it is empty, or not of this form.
    """
    if form.kind == "set":
        return of_set([] if label == form.no_labels else label.split(form.separator), form)
    if not label:
        raise BadLabel("the label is empty")
    if form.kind == "number" and not _is_number(label):
        raise BadLabel(f"the label {value_text(label)} is no number; for names set reader.label_form.kind: name")
    return label


def of_set(labels: Sequence[str], form: LabelForm) -> str:
    """Return a set of labels as a prepared corpus has it: sorted, each once, without blanks around them.

    Raises:
        BadLabel: the word for no label is among others, or a name would be read as several labels, or as none.
    """
    found = sorted({label.strip() for label in labels} - {""})
    if not found:
        if labels:
            raise BadLabel(f"the label is empty; a text without labels has {value_text(form.no_labels)}")
        return NO_LABELS
    for name in found:
        if name == form.no_labels:
            raise BadLabel(f"{value_text(name)} means no label, but is written with others")
        if name == NO_LABELS or BETWEEN_LABELS in name:
            raise BadLabel(f"the label {value_text(name)} cannot be stored in a set; give it another name")
    return BETWEEN_LABELS.join(found)


def labels_in(corpus: Corpus, label: str) -> list[str]:
    """Return the labels of a labelled text: several, or the word for none, where they are sets."""
    sets = isinstance(corpus.reader, FormedReader) and corpus.reader.label_form.kind == "set"
    return labels_of(label) or [label] if sets else [label]


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False
