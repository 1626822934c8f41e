"""Sentences with a tag for each word: columns of CoNLL and CoNLL-U files, and lists in records.

A row of a CoNLL file is a word; a blank line ends a sentence. Memory is one sentence. Entities are stored in iob2,
whatever scheme the file has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lexmill.base.budgets import MAX_DOCUMENT_BYTES
from lexmill.base.errors import UserError
from lexmill.base.tag_schemes import OUTSIDE, BadTags, Scheme, check, to_iob2
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers.columns import BadValue, shown, text_of
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import Span
from lexmill.corpora.preparing.text_files import Advance, TextFile, lines
from lexmill.params.readers import ConllReader, ConlluReader, TaggedRecordsReader

_SPACES = re.compile("[ \t]+")
_DOCUMENT = "-DOCSTART-"
_NEW_DOCUMENT = re.compile(r"#\s*newdoc(?:\s+id\s*=\s*(.*))?\s*$")
_ID = re.compile(r"([0-9]+)(?:[-.][0-9]+)?$")
_COLUMNS = 10  # of CoNLL-U
_TAG_COLUMN = {"upos": 3, "xpos": 4}
_FORM, _MISC = 1, 9
_RIGHT = "is reader.scheme right? (init: --scheme)"
_CHECK = "check reader.word, reader.tag (init: --words, --tags) and reader.separator"


class _NoWord(Exception):
    """A row that is no word: a comment, a range of words, an empty node, a mark of documents."""


@dataclass
class _Sentence:
    """A sentence while it is read: its words and tags, the line of each, and the number of columns of the first."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    size: int = 0
    columns: int = 0


class _Documents:
    """The document that is being read, by its name or number in a file."""

    def __init__(self, name: str) -> None:
        self.name, self._count = name, 0
        self.now = f"{name}:0"

    def next(self, given: str | None = None) -> None:
        """Begin another one."""
        self._count += 1
        self.now = given or f"{self.name}:{self._count}"


def inside_after(line: str) -> bool:
    """Return whether a sentence continues in the next line, unless that is blank."""
    return bool(line.strip(" \t"))


def read_columns(
    reader: ConllReader | ConlluReader, name: str, file: TextFile, *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Record]:
    """Yield the sentences of one file; each is its own group, or belongs to its document."""
    documents = _Documents(name)
    of_row = _conllu_row(reader, documents) if isinstance(reader, ConlluReader) else _conll_row(reader, documents)
    sentence, begun, wrong, skipping = _Sentence(), False, False, span.inside
    try:
        for number, line in lines(*file, advance, place=span.places[0]):
            if number >= span.stop and not begun:
                return
            skipping = skipping and inside_after(line)
            if skipping:
                continue
            if inside_after(line):
                begun = True
                sentence.size += len(line)
                if sentence.size > MAX_DOCUMENT_BYTES:
                    message = f"the sentence that ends here is longer than {MAX_DOCUMENT_BYTES >> 20} MiB"
                    raise UserError(f"{message}; a blank line ends a sentence", file.path, number)
                try:
                    word, tag, columns = of_row(line)
                    sentence.columns = sentence.columns or columns
                    if columns != sentence.columns:
                        raise BadValue(f"{_count(columns)} where its sentence begins with {sentence.columns}; {_CHECK}")
                except _NoWord:
                    continue
                except BadValue as error:
                    errors.add(UserError(str(error), file.path, number))
                    wrong = True
                    continue
                sentence.words.append(word)
                sentence.tags.append(tag)
                sentence.numbers.append(number)
                continue
            if not wrong:
                yield from _records(reader, documents, sentence, file.path, errors)
            sentence, begun, wrong = _Sentence(), False, False
        if not wrong:
            yield from _records(reader, documents, sentence, file.path, errors)
    except UserError as error:
        errors.add_last(error)


def _records(
    reader: ConllReader | ConlluReader, documents: _Documents, sentence: _Sentence, file: Path, errors: Errors
) -> Iterator[Record]:
    """Yield the record of a sentence; nothing where it has no words."""
    if not sentence.words:
        return
    try:
        tags = _checked(sentence.tags, reader.scheme)
    except BadTags as error:
        errors.add(UserError(f"{error}; {_RIGHT}", file, sentence.numbers[error.word]))
        return
    group = documents.now if reader.group == "document" else None
    yield tagged(f"{documents.name}:{sentence.numbers[0]}", group, sentence.words, tags)


def _checked(tags: list[str], scheme: Scheme) -> list[str]:
    """Return tags in iob2; raise `BadTags`."""
    check(tags, scheme)
    return to_iob2(tags, scheme)


def tagged(name: str, group: str | None, words: list[str], tags: list[str]) -> Record:
    """Return the record of a sentence."""
    return Record(name, group, " ".join(words), words=tuple(words), tags=tuple(tags))


# ---------------------------------------------------------------- rows


def _conll_row(reader: ConllReader, documents: _Documents) -> Callable[[str], tuple[str, str, int]]:
    """Return a function of a line: its word, its tag, and the number of its columns."""

    def of_row(line: str) -> tuple[str, str, int]:
        if reader.comment and line.startswith(reader.comment):
            raise _NoWord
        columns = line.split("\t") if reader.separator == "tab" else _SPACES.split(line.strip(" \t"))
        if columns[0] == _DOCUMENT:
            documents.next()
            raise _NoWord
        word, tag = _cell(columns, reader.word, "word"), _cell(columns, reader.tag, "tag")
        if reader.word % len(columns) == reader.tag % len(columns):
            raise BadValue(f"{_count(len(columns))}, so the word would be its own tag; {_CHECK}")
        return word, tag, len(columns)

    def _cell(columns: list[str], place: int, role: str) -> str:
        if not -len(columns) <= place < len(columns):
            raise BadValue(f"{_count(len(columns))}, so there is no column {place}; {_CHECK}")
        value = columns[place].strip()
        if not value:
            raise BadValue(f"the {role} in column {place} is empty")
        return value

    return of_row


def _count(columns: int) -> str:
    return f"{columns} column{'s' if columns > 1 else ''}"


def _conllu_row(reader: ConlluReader, documents: _Documents) -> Callable[[str], tuple[str, str, int]]:
    """Return a function of a line: its word, its tag, and the number of its columns."""

    def of_row(line: str) -> tuple[str, str, int]:
        if line.startswith("#"):
            if (found := _NEW_DOCUMENT.match(line)) is not None:
                documents.next((found[1] or "").strip() or None)
            raise _NoWord
        columns = line.split("\t")
        if len(columns) != _COLUMNS:
            raise BadValue(f"{len(columns)} columns between tabs; a word of CoNLL-U has {_COLUMNS}")
        identity = _ID.match(columns[0])
        if identity is None:
            raise BadValue(f"{shown(columns[0])} is no number of a word")
        if identity[1] != columns[0]:
            raise _NoWord  # 3-4: words 3 and 4 follow; 8.1: not in the text
        word = columns[_FORM].strip()
        if not word:
            raise BadValue("the word is empty")
        return word, _misc(columns[_MISC]) if reader.tag == "misc" else _tag(columns), _COLUMNS

    def _tag(columns: list[str]) -> str:
        found = columns[_TAG_COLUMN[reader.tag]].strip()
        if not found or found == "_":
            raise BadValue(f"the word has no {reader.tag}; does the file have that column?")
        return found

    def _misc(cell: str) -> str:
        """Return the value of the key in `A=b|C=d`."""
        pairs = (pair.partition("=") for pair in cell.split("|"))
        return next((value.strip() for key, _, value in pairs if key == reader.key and value.strip()), OUTSIDE)

    return of_row


# ---------------------------------------------------------------- records


def of_lists(
    reader: TaggedRecordsReader, name: str, group: str | None, columns: Mapping[str, str], row: Mapping[str, Any]
) -> Record:
    """Return the record of a row with a list of words and one of tags.

    Raises:
        BadValue: a value is no such list, or they differ in length, or the tags are not of the scheme.
    """
    words = [text_of(columns["words"], word).strip() for word in _list(columns["words"], row["words"])]
    tags = [_named(reader, columns["tags"], tag) for tag in _list(columns["tags"], row["tags"])]
    if len(words) != len(tags):
        raise BadValue(f"'{columns['words']}' has {len(words)} words, '{columns['tags']}' {len(tags)} tags")
    if not all(words):
        raise BadValue(f"word {words.index('') + 1} of '{columns['words']}' is empty")
    try:
        return tagged(name, group, words, _checked(tags, reader.scheme))
    except BadTags as error:
        raise BadValue(f"tag {error.word + 1} of '{columns['tags']}': {error}; {_RIGHT}") from None


def _list(column: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise BadValue(f"'{column}' holds {shown(value)}, not a list of texts")
    return value


def _named(reader: TaggedRecordsReader, column: str, tag: Any) -> str:
    """Return a tag, by its number among `names` where the file has numbers."""
    if isinstance(tag, int) and not isinstance(tag, bool):
        if not reader.names:
            raise BadValue(f"'{column}' holds the number {tag}; give the tags' names in reader.names")
        if not 0 <= tag < len(reader.names):
            raise BadValue(f"'{column}' holds the number {tag}, but reader.names has {len(reader.names)} names")
        return reader.names[tag]
    found = text_of(column, tag).strip()
    if not found:
        raise BadValue(f"'{column}' holds an empty tag")
    return found
