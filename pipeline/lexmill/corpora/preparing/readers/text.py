"""Plain text files: a document is a file, a paragraph (lines between blank lines) or a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lexmill.base.budgets import MAX_DOCUMENT_BYTES
from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import Span
from lexmill.corpora.preparing.text_files import Advance, checked_encoding, lines, whole_text
from lexmill.params.readers import TextReader


def read(
    reader: TextReader, name: str, file: Path, *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Record]:
    """Yield the documents of one file; a file's group is its name, that of a paragraph or line its own text."""
    encoding = checked_encoding(reader.encoding)
    try:
        if reader.document == "file":
            yield Record(name, name, whole_text(file, encoding, advance))
        elif reader.document == "line":
            for number, line in lines(file, encoding, advance, place=span.places[0], stop=span.stop):
                yield Record(f"{name}:{number}", None, line)
        else:
            yield from _paragraphs(name, file, encoding, span, advance)
    except UserError as error:
        errors.add_last(error)


def inside_after(line: str) -> bool:
    """Whether a paragraph continues in the next line, unless that is blank."""
    return bool(line.strip())


def _paragraphs(name: str, file: Path, encoding: str, span: Span, advance: Advance) -> Iterator[Record]:
    start, size = 0, 0
    paragraph: list[str] = []
    skipping = span.inside
    for number, line in lines(file, encoding, advance, place=span.places[0]):
        if number >= span.stop and not paragraph:
            return
        skipping = skipping and inside_after(line)
        if skipping:
            continue
        if inside_after(line):
            start = start or number
            size += len(line) + 1
            if size > MAX_DOCUMENT_BYTES:
                message = f"the paragraph that begins here is longer than {MAX_DOCUMENT_BYTES >> 20} MiB"
                raise UserError(f"{message}; set reader.document: line", file, start)
            paragraph.append(line)
        elif paragraph:
            yield Record(f"{name}:{start}", None, "\n".join(paragraph))
            start, size, paragraph = 0, 0, []
    if paragraph:
        yield Record(f"{name}:{start}", None, "\n".join(paragraph))
