"""A confusion matrix as a metrics file holds it; `lexmill.report.confusion` reads it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_AS = re.compile("(?<![^ ])as(?![^ ])")


def confusion_counts(pairs: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return `"<right> as <predicted>"` -> how often each pair of labels occurs, by right, then predicted label.

    A backslash within a label is doubled and its word `as` is written `\\as`, so that each key is of one pair.
    """
    return {
        f"{_escaped(right)} as {_escaped(found)}": count for (right, found), count in sorted(Counter(pairs).items())
    }


def _escaped(label: str) -> str:
    return _AS.sub(r"\\as", label.replace("\\", "\\\\"))
