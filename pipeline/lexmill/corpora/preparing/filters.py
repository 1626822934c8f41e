"""Which records are removed one by one, by their own text alone.

Lengths are in characters without white space at the ends; words are what white space separates. The filters are asked
in the order of `active`, and the first that hits removes the record and counts it, so counts add up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from lexmill.corpora.preparing.record import Record
from lexmill.params.corpora import Corpus, RecordsReader

Filter = Callable[[Record], bool]
"""Says whether a record is to be removed."""

_URL = re.compile(r"https?://|http\(s\)://", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def _characters(text: str) -> int:
    return len(text.strip())


def _words(text: str) -> int:
    return len(text.split())


def _ratio(record: Record) -> float:
    """Target over source length in characters."""
    return _characters(record.target or "") / max(1, _characters(record.text))


def _placeholders(text: str) -> Counter[str]:
    return Counter(_PLACEHOLDER.findall(text))


def _too_short(record: Record, fewest: int) -> bool:
    return any(_characters(side) < fewest for side in record.sides)


def _too_long(record: Record, most: int) -> bool:
    return any(_characters(side) > most for side in record.sides)


def _too_wordy(record: Record, most: int) -> bool:
    return any(_words(side) > most for side in record.sides)


def _other_placeholders(record: Record) -> bool:
    return _placeholders(record.text) != _placeholders(record.target or "")


def active(corpus: Corpus) -> dict[str, Filter]:
    """The filters of a corpus that can remove anything, by the name of their parameter."""
    bounds = corpus.filters
    pairs = corpus.kind == "parallel"
    found: dict[str, Filter] = {}
    if isinstance(corpus.reader, RecordsReader) and corpus.reader.positive_from is not None:
        found["neutral_rating"] = lambda record: record.label is None
    if bounds.min_characters:
        found["min_characters"] = lambda record: _too_short(record, bounds.min_characters)
    if bounds.max_characters:
        found["max_characters"] = lambda record: _too_long(record, bounds.max_characters)
    if bounds.min_words:
        found["min_words"] = lambda record: _words(record.text) < bounds.min_words
    if bounds.max_words:
        found["max_words"] = lambda record: _too_wordy(record, bounds.max_words)
    if bounds.drop_urls:
        found["drop_urls"] = lambda record: any(_URL.search(side) for side in record.sides)
    if bounds.drop_newlines:
        found["drop_newlines"] = lambda record: any("\n" in side for side in record.sides)
    if pairs and bounds.same_placeholders:
        found["same_placeholders"] = _other_placeholders
    if pairs and bounds.min_length_ratio:
        found["min_length_ratio"] = lambda record: _ratio(record) < bounds.min_length_ratio
    if pairs and bounds.max_length_ratio:
        found["max_length_ratio"] = lambda record: _ratio(record) > bounds.max_length_ratio
    return found
