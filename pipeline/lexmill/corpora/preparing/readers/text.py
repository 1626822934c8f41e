"""Plain text files: a document is a file, a paragraph (lines between blank lines) or a line.

In a labelled corpus the label is the name of the file's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from lexmill.base.budgets import MAX_DOCUMENT_BYTES
from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import Span, Unit
from lexmill.corpora.preparing.text_files import Advance, TextFile, lines, whole_text
from lexmill.params.readers import TextReader


def units(paths: Mapping[str, str], reader: TextReader, errors: Errors, folder: Path) -> list[Unit]:
    """Return the files to read by their name; add an error for each that has no folder to be its label."""
    if reader.label_from == "folder":
        for path in paths:
            if "/" not in path:
                message = "is in no folder that could be its label (reader.label_from: folder)"
                errors.add(UserError(f"{message}; of a file source, set source.keep_folder: true", folder / path))
    return [] if errors else [(name, (path,)) for path, name in paths.items()]


def read(
    reader: TextReader, name: str, path: str, file: TextFile, *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Record]:
    """Yield the documents of one file; a file's group is its name, that of a paragraph or line its own text.

    Args:
        reader, name: its choices, and the name of the file's records.
        path, file: the file's path in the source folder, and the file.
        span: the lines to read.
        errors: collects the error that ends the reading.
        advance: called with the number of bytes read.
    """
    label = PurePosixPath(path).parent.name if reader.label_from == "folder" else None
    try:
        if reader.document == "file":
            yield Record(name, name, whole_text(*file, advance), label=label)
        elif reader.document == "line":
            for number, line in lines(*file, advance, place=span.places[0], stop=span.stop):
                yield Record(f"{name}:{number}", None, line, label=label)
        else:
            for start, paragraph in _paragraphs(file, span, advance):
                yield Record(f"{name}:{start}", None, paragraph, label=label)
    except UserError as error:
        errors.add_last(error)


def inside_after(line: str) -> bool:
    """Whether a paragraph continues in the next line, unless that is blank."""
    return bool(line.strip())


def _paragraphs(file: TextFile, span: Span, advance: Advance) -> Iterator[tuple[int, str]]:
    """Yield each paragraph and the line at which it begins."""
    start, size = 0, 0
    paragraph: list[str] = []
    skipping = span.inside
    for number, line in lines(*file, advance, place=span.places[0]):
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
                raise UserError(f"{message}; set reader.document: line", file.path, start)
            paragraph.append(line)
        elif paragraph:
            yield start, "\n".join(paragraph)
            start, size, paragraph = 0, 0, []
    if paragraph:
        yield start, "\n".join(paragraph)
