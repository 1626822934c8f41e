"""The order of Debian's version numbers, epoch:upstream-revision (deb-version(7)), without dpkg."""

from __future__ import annotations

import re
from itertools import zip_longest


def compare(a: str, b: str) -> int:
    """Return below 0, 0 or above 0 as version `a` is older than, equal to or newer than `b`."""
    for one, other in zip(_parts(a), _parts(b), strict=True):
        if order := _compare_part(one, other):
            return order
    return 0


def _parts(version: str) -> tuple[str, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return (epoch, upstream, revision) if dash else (epoch, rest, "0")


def _compare_part(a: str, b: str) -> int:
    """Compare alternating runs of non-digits and digits, from the left."""
    for one, other in zip_longest(_runs(a), _runs(b), fillvalue=("", 0)):
        first, second = (_key(one[0]), one[1]), (_key(other[0]), other[1])
        if first != second:
            return -1 if first < second else 1
    return 0


def _runs(text: str) -> list[tuple[str, int]]:
    return [
        (letters, int(digits or 0)) for letters, digits in re.findall(r"([^0-9]*)([0-9]*)", text) if letters or digits
    ]


def _key(letters: str) -> list[int]:
    """Sort letters before other signs, and '~' before the end (0)."""
    return [-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in letters] + [0]
