"""Filters that remove a record by its own text alone.

Lengths are in characters without white space at the ends; words are separated by white space. For the length ratio of
a pair a wide character of East Asian scripts counts as 2.5, so that the same bounds fit any two scripts. Filters run in
the order of `active`; the first match removes the record and counts it, so counts add up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from lexmill.base.language_identification import probability
from lexmill.corpora.preparing import personal_data
from lexmill.corpora.preparing.record import Record
from lexmill.params.corpora import Corpus
from lexmill.params.readers import RecordsReader

Filter = Callable[[Record], bool]
"""Whether to remove a record."""

_URL = re.compile(r"https?://|http\(s\)://", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
# What Unicode calls wide or fullwidth in the scripts of Chinese, Japanese and Korean, without emoji. Not Python's own
# table: it differs between versions, and a corpus must not.
_WIDE = re.compile(
    "[\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6b\uff01-\uff60\uffe0-\uffe6"
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b2ff\U00020000-\U0003fffd]"
)
_LETTERS_A_WIDE_CHARACTER = 2.5  # measured on software messages, docs/experiments.md


def _characters(record: Record) -> list[int]:
    return [len(side.strip()) for side in record.sides]


def _words(record: Record) -> list[int]:
    return [len(side.split()) for side in record.sides]


def _ratio(record: Record) -> float:
    """Target over source length in letters."""
    source, target = (_letters(side.strip()) for side in record.sides)
    return target / max(1, source)


def _letters(text: str) -> float:
    """Return the length of a text, a wide character counted as the letters that it stands for."""
    return len(text) + (_LETTERS_A_WIDE_CHARACTER - 1) * len(_WIDE.findall(text))


def _other_placeholders(record: Record) -> bool:
    source, target = (Counter(_PLACEHOLDER.findall(side)) for side in record.sides)
    return source != target


def _holds(kind: str, record: Record) -> bool:
    return any(personal_data.first_kind(side) == kind for side in record.sides)


def _foreign(corpus: Corpus, record: Record) -> bool:
    """Whether a text is probably not in its language: of a pair its own, else one of the corpus's."""
    bound, languages = corpus.filters.min_language_probability, corpus.languages
    of_sides = [languages[:1], languages[1:]] if corpus.kind == "parallel" else [languages] * len(record.sides)
    return any(probability(side, own) < bound for side, own in zip(record.sides, of_sides, strict=True))


def mask(record: Record, counts: Counter[str]) -> None:
    """Mask the personal data in a record's texts, in place; count it by kind."""
    record.rewrite(lambda text: personal_data.masked(text, counts))


def of_all_sets(steps: Mapping[str, Filter]) -> dict[str, Filter]:
    """Return the filters that also a given valid or test set must pass: it stays whole but for these.

    A text without a label or an answer cannot be scored, and personal data that is unwanted is unwanted everywhere.
    """
    always = ("neutral_rating", "answer_not_found")
    return {name: step for name, step in steps.items() if name in always or name.startswith("personal_")}


def active(corpus: Corpus) -> dict[str, Filter]:
    """The active filters of a corpus, by the name of their parameter."""
    bounds = corpus.filters
    pairs = corpus.kind == "parallel"
    found: dict[str, Filter] = {}
    if corpus.kind == "questions":
        found["answer_not_found"] = lambda record: record.lost
    if isinstance(corpus.reader, RecordsReader) and corpus.reader.positive_from is not None:
        found["neutral_rating"] = lambda record: record.label is None
    if bounds.min_characters:
        found["min_characters"] = lambda record: min(_characters(record)) < bounds.min_characters
    if bounds.max_characters:
        found["max_characters"] = lambda record: max(_characters(record)) > bounds.max_characters
    if bounds.min_words:
        found["min_words"] = lambda record: _words(record)[0] < bounds.min_words
    if bounds.max_words:
        found["max_words"] = lambda record: max(_words(record)) > bounds.max_words
    if bounds.drop_urls:
        found["drop_urls"] = lambda record: any(_URL.search(side) for side in record.sides)
    if bounds.personal_data == "drop":
        for kind in personal_data.KINDS:
            found[f"personal_{kind}"] = partial(_holds, kind)
    if bounds.drop_newlines:
        found["drop_newlines"] = lambda record: any("\n" in side for side in record.sides)
    if pairs and bounds.same_placeholders:
        found["same_placeholders"] = _other_placeholders
    if pairs and bounds.min_length_ratio:
        found["min_length_ratio"] = lambda record: _ratio(record) < bounds.min_length_ratio
    if pairs and bounds.max_length_ratio:
        found["max_length_ratio"] = lambda record: _ratio(record) > bounds.max_length_ratio
    if bounds.min_language_probability:
        found["min_language_probability"] = partial(_foreign, corpus)
    return found
