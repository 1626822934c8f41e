"""One record on its way from a reader to a prepared corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Record:
    """A text, a labelled text or a sentence pair.

    Attributes:
        id: unique in the corpus, `<file>` or `<file>:<line>` or `<component>:<key>`.
        group: records of one group share a split; None: the text itself.
        text, target: the text, or the two sides of a pair.
        label: of a labelled text; None for a rating between the thresholds.
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
