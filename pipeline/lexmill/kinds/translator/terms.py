"""Phrases whose translation is given: where a source has them, and the share of translations that keep to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from lexmill.decoding.scripts import UNSPACED
from lexmill.evaluation.rows import Row


def phrases_of(line: str, lexicon: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return what the translation of a line must have."""
    found = [target for source, target in lexicon if source in line and _as_word(source).search(line)]
    return tuple(dict.fromkeys(found))


def kept_terms(rows: Sequence[Row], lexicon: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Return `with_terms`, in how many sources there is a phrase, and `kept_terms`, the share of their translations
    that have all that the lexicon wants; {} where no source has any.
    """
    wanted = [(row["hypothesis"], phrases_of(row["source"], lexicon)) for row in rows]
    each = [all(phrase in made for phrase in phrases) for made, phrases in wanted if phrases]
    return {"kept_terms": sum(each) / len(each), "with_terms": len(each)} if each else {}


@lru_cache(maxsize=1 << 17)
def _as_word(phrase: str) -> re.Pattern[str]:
    """Return a pattern of a phrase that no letter of a script with spaces is beside."""
    beside = rf"[^\W{UNSPACED}]"
    return re.compile(rf"(?<!{beside}){re.escape(phrase)}(?!{beside})")
