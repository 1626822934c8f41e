"""The reader of a user's tagged sentences: which columns, and how the tags mark entities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.base.tag_schemes import OUTSIDE, BadTags, Scheme, check

if TYPE_CHECKING:
    from lexmill.params.corpora import Corpus

_PREFIXES = frozenset("BIES")
_NEARLY_ALL = 0.9  # of the tags but O


def columns_of(chosen: str, columns: Mapping[str, str | None], group: str | None) -> dict[str, Any]:
    """Return the keys of a reader that say which columns it reads, as plain data.

    Args:
        chosen: conll, conllu or tagged_records.
        columns: the column of `words` and of `tags`; None: the usual one.
        group: what shares a split.

    Raises:
        UserError: there is no such column in the format.
    """
    words, tags = columns.get("words"), columns.get("tags")
    if chosen == "tagged_records":
        return {"words": words or "words", "tags": tags or "tags", **({"group": group} if group else {})}
    if group not in (None, "document", "sentence"):
        raise UserError(f"--group: {value_text(group)} is no column of such files; give document, or leave it out")
    found: dict[str, Any] = {"group": group} if group else {}
    if chosen == "conll":
        numbers = (("word", "--words", words), ("tag", "--tags", tags))
        return found | {key: _number(option, value) for key, option, value in numbers if value is not None}
    if words is not None:
        raise UserError("--words: the words of CoNLL-U have a column of their own; leave it out")
    column, _, key = (tags or "upos").partition(":")
    return found | {"tag": column} | ({"key": key} if key else {})


def _number(option: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UserError(f"{option}: {value_text(value)} is no number of a column, from 0; -1: the last") from None


def scheme_of(corpus: Corpus, files: Mapping[str, Path]) -> Scheme:
    """Return how the tags of a user's files mark entities: the first scheme that allows all of them.

    `iob2` where nearly all tags have the form of a scheme but fit none, so that reading them by it names what is wrong.

    Args:
        corpus: with the scheme `none`.
        files: its files by name.
    """
    fitting: dict[Scheme, bool] = {"iob2": True, "iob1": True, "bioes": True}
    formed = others = 0
    for tags in _sentences(corpus, files):
        inside = [tag for tag in tags if tag != OUTSIDE]
        right = sum(tag[:1] in _PREFIXES and tag[1:2] == "-" and bool(tag[2:]) for tag in inside)
        formed, others = formed + right, others + len(inside) - right
        fitting = {scheme: fits and _is_valid(tags, scheme) for scheme, fits in fitting.items()}
    if formed < _NEARLY_ALL * (formed + others) or not formed:
        return "none"
    return next((scheme for scheme, fits in fitting.items() if fits), "iob2")


def _is_valid(tags: tuple[str, ...], scheme: Scheme) -> bool:
    try:
        check(tags, scheme)
    except BadTags:
        return False
    return True


def _sentences(corpus: Corpus, files: Mapping[str, Path]) -> Iterator[tuple[str, ...]]:
    """Yield the tags of each sentence; what cannot be read is left out."""
    from lexmill.corpora.preparing.errors import Errors
    from lexmill.corpora.preparing.readers import read
    from lexmill.corpora.preparing.small import linked
    from lexmill.corpora.preparing.source_files import SourceFiles

    with linked(files) as folder:
        for record in read(corpus, SourceFiles(folder), Errors()):
            yield record.tags
