"""One record on its way from a reader to a prepared corpus."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lexmill.corpora.preparing.answers import Answer, moved

Form = Literal["NFC", "NFKC", "none"]


@dataclass(slots=True)
class Record:
    """A text, a labelled text, a tagged sentence, a sentence pair, a conversation or a question about a context.

    Attributes:
        id: unique in the corpus, `<file>` or `<file>:<line>` or `<component>:<key>`.
        group: records of one group share a split; None: the text itself.
        text, target: the text, or the two sides of a pair; of a conversation all before the answer, and the answer; of
            a question its context, and the question.
        label: of a labelled text; None for a rating between the thresholds.
        split: the set that the data's owners put it in: valid, test, a further test set; None: train, or none.
        turns: of a conversation the role and text of each message before the answer.
        rejected: of a conversation a worse answer; None: there is none.
        answers: of a question, spans of its context; none: the context does not answer it. None: no question.
        lost: of a question, whether it had answers but none is in its context.
        words, tags: of a tagged sentence, whose text is its words with a space between each two.
    """

    id: str
    group: str | None
    text: str
    target: str | None = None
    label: str | None = None
    split: str | None = None
    turns: tuple[tuple[str, str], ...] = ()
    rejected: str | None = None
    answers: tuple[Answer, ...] | None = None
    lost: bool = False
    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(side for side in (self.text, self.target, self.rejected) if side is not None)

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Change each text of the record in place; answers stay spans of their context."""
        if self.answers:
            self.answers = moved(self.text, self.answers, change)
            self.lost = not self.answers
        if self.turns:
            self.turns = tuple((role, change(content)) for role, content in self.turns)
            self.text = " ".join(content for _, content in self.turns)
        elif self.words:
            self.words = tuple(change(word) for word in self.words)
            self.text = " ".join(self.words)
        else:
            self.text = change(self.text)
        self.target = self.target if self.target is None else change(self.target)
        self.rejected = self.rejected if self.rejected is None else change(self.rejected)

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
    """Normalise the texts, the label or tags, and the group of a record in place; strip all texts but running text."""
    record.rewrite(lambda text: normalize(text, form) if kind == "text" else normalize(text, form).strip())
    if record.label is not None:
        record.label = normalize(record.label, form)
    record.tags = tuple(normalize(tag, form) for tag in record.tags)
    if record.group is not None:
        record.group = normalize(record.group, form)


def group_of(record: Record) -> str:
    """The name of a record's group: the one it has, or a hash of its text."""
    return record.group if record.group is not None else text_key(record.text).hex()
