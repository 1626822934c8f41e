"""Blocks of a text: the rows of what is scored on running text, since whole works are too few to resample."""

from __future__ import annotations

import re

BLOCK = 8000  # characters, about 2,000 tokens
_SPACE = re.compile(r"\s")


def cuts(text: str, size: int = BLOCK) -> list[int]:
    """Return where blocks of at least `size` characters end, each just before white space; the last is `len(text)`."""
    found = []
    start = 0
    while len(text) - start > size:
        space = _SPACE.search(text, start + size)
        if space is None or not text[space.start() :].strip():
            break
        found.append(space.start())
        start = space.start()
    return [*found, len(text)]
