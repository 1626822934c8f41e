"""Unicode normalisation: the form in which texts are filtered, compared and stored.

NFC and NFKC of Unicode Standard Annex #15, by Python's `unicodedata`. Running text keeps its white space; labelled
texts and both sides of a pair are stripped.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

from lexmill.corpora.preparing.record import Record

Form = Literal["NFC", "NFKC", "none"]


def normalize(text: str, form: Form) -> str:
    """The text in a Unicode normal form."""
    return text if form == "none" or text.isascii() else unicodedata.normalize(form, text)


def normalize_record(record: Record, kind: str, form: Form) -> None:
    """Normalise the sides, the label and the group of a record in place."""
    record.text = normalize(record.text, form)
    if record.target is not None:
        record.target = normalize(record.target, form).strip()
    if kind != "text":
        record.text = record.text.strip()
    if record.label is not None:
        record.label = normalize(record.label, form)
    if record.group is not None:
        record.group = normalize(record.group, form)
