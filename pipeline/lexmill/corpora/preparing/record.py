"""One record on its way from a reader to a prepared corpus."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Form = Literal["NFC", "NFKC", "none"]


@dataclass(slots=True)
class Record:
    """A text, a labelled text or a sentence pair.

    Attributes:
        id: unique in the corpus, `<file>` or `<file>:<line>` or `<component>:<key>`.
        group: records of one group share a split; None: the text itself.
        text, target: the text, or the two sides of a pair.
        label: of a labelled text; None for a rating between the thresholds.
        split: the set that the data's owners put it in: valid, test, a further test set; None: train, or none.
    """

    id: str
    group: str | None
    text: str
    target: str | None = None
    label: str | None = None
    split: str | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        return (self.text,) if self.target is None else (self.text, self.target)

    @property
    def shown(self) -> str:
        """For display: the text, or `source ||| target`."""
        return shown(self.sides)


def shown(sides: Sequence[str]) -> str:
    """The sides of a record for display."""
    return " ||| ".join(sides)


def text_key(*texts: str) -> bytes:
    """A 16-byte hash of the texts (the chance of a collision among 10^9 is 10^-21)."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()[:16]


def normalize(text: str, form: Form) -> str:
    """The text in a normal form of Unicode Standard Annex #15, by Python's `unicodedata`."""
    return text if form == "none" or text.isascii() else unicodedata.normalize(form, text)


def normalize_record(record: Record, kind: str, form: Form) -> None:
    """Normalise the sides, the label and the group of a record in place; strip labelled texts and sides of a pair."""
    record.text = normalize(record.text, form)
    if record.target is not None:
        record.target = normalize(record.target, form).strip()
    if kind != "text":
        record.text = record.text.strip()
    if record.label is not None:
        record.label = normalize(record.label, form)
    if record.group is not None:
        record.group = normalize(record.group, form)


def group_of(record: Record) -> str:
    """The name of a record's group: the one it has, or a hash of its text."""
    return record.group if record.group is not None else text_key(record.text).hex()
