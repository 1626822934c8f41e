"""Plain text files: a document is a file, a paragraph (lines between blank lines) or a line."""

from __future__ import annotations

from collections.abc import Iterator

from lexmill.corpora.preparing.faults import Faults
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import SourceFiles, names
from lexmill.corpora.preparing.text_files import MAX_DOCUMENT_BYTES, Advance, checked_encoding, lines, whole_text
from lexmill.errors import UserError
from lexmill.params import TextReader


def read(reader: TextReader, files: SourceFiles, faults: Faults, advance: Advance) -> Iterator[Record]:
    """Documents; a file's group is its name, a paragraph's or a line's is its own text."""
    try:
        encoding = checked_encoding(reader.encoding)
    except UserError as fault:
        faults.add(fault)
        return
    for path, name in names(files.paths).items():
        try:
            if reader.document == "file":
                yield Record(name, name, whole_text(files.file(path), encoding, advance))
            elif reader.document == "line":
                for number, line in lines(files.file(path), encoding, advance):
                    yield Record(f"{name}:{number}", None, line)
            else:
                yield from _paragraphs(name, files, path, encoding, advance)
        except UserError as fault:
            faults.add(fault)


def _paragraphs(name: str, files: SourceFiles, path: str, encoding: str, advance: Advance) -> Iterator[Record]:
    start, size = 0, 0
    paragraph: list[str] = []
    for number, line in lines(files.file(path), encoding, advance):
        if line.strip():
            start = start or number
            size += len(line) + 1
            if size > MAX_DOCUMENT_BYTES:
                message = f"the paragraph that begins here is longer than {MAX_DOCUMENT_BYTES >> 20} MiB"
                raise UserError(f"{message}; set reader.document: line", files.file(path), start)
            paragraph.append(line)
        elif paragraph:
            yield Record(f"{name}:{start}", None, "\n".join(paragraph))
            start, size, paragraph = 0, 0, []
    if paragraph:
        yield Record(f"{name}:{start}", None, "\n".join(paragraph))
