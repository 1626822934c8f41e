"""Sources as people also write them: in capitals, without the mark at the end, with typing errors.

What a program fills in or reads (`segments.PLACEHOLDER`) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from lexmill.data.permutation import fold
from lexmill.kinds.translator.segments import PLACEHOLDER

_LETTERS = re.compile(r"[^\W\d_]{4,}")  # shorter words would be others with an error
_END = re.compile(r"[\s.!?…。！？]+$")
_ERRORS = 0.2  # of the words


def upper_case(text: str) -> str:
    """Return the text in capitals."""
    return outside_placeholders(text, str.upper)


def without_end(text: str) -> str:
    """Return the text without the punctuation at its end; one that is nothing else stays."""
    return _END.sub("", text) or text


def with_typos(text: str, seed: int) -> str:
    """Return the text with an error in a fifth of the words of four letters and more, drawn by the seed.

    Two neighbours inside the word change places, or one letter is left out, or written twice.
    """
    draws = np.random.default_rng(fold(seed, "typos", text))

    def mistyped(found: re.Match[str]) -> str:
        word = found[0]
        if draws.random() >= _ERRORS:
            return word
        at, kind = int(draws.integers(1, len(word) - 1)), int(draws.integers(3))
        middle = (word[at + 1] + word[at], word[at + 1], word[at] * 2 + word[at + 1])[kind]
        return word[:at] + middle + word[at + 2 :]

    return outside_placeholders(text, lambda part: _LETTERS.sub(mistyped, part))


def outside_placeholders(text: str, change: Callable[[str], str]) -> str:
    """Return the text with its parts between placeholders changed."""
    kept = PLACEHOLDER.findall(text)
    parts = [change(part) for part in PLACEHOLDER.split(text)]
    return "".join(part + place for part, place in zip(parts, [*kept, ""], strict=True))


def variants(seed: int) -> Mapping[str, Callable[[str], str]]:
    """Return how a source is changed, by name."""
    return {"upper_case": upper_case, "without_end": without_end, "typos": lambda text: with_typos(text, seed)}
