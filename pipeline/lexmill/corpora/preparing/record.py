"""One record on its way from a reader to a prepared corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Record:
    """A text, a labelled text or a sentence pair.

    Attributes:
        id: names it within the corpus, `<file>` or `<file>:<line>` or `<component>:<key>`.
        group: what must stay in one split; None: the text itself.
        text: the text, or the source side of a pair.
        target: the target side of a pair.
        label: the label of a labelled text; None for a rating between the thresholds.
    """

    id: str
    group: str | None
    text: str
    target: str | None = None
    label: str | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        return (self.text,) if self.target is None else (self.text, self.target)

    @property
    def shown(self) -> str:
        """For people: the text, or `source ||| target`."""
        return shown(self.sides)


def shown(sides: Sequence[str]) -> str:
    """The sides of a record for people."""
    return " ||| ".join(sides)


def text_key(*texts: str) -> bytes:
    """A hash of 16 bytes that stands for the texts (the chance that two of 10^9 share one is 10^-21)."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()[:16]
