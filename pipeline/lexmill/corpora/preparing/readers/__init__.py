"""Read fetched files into records, one at a time; the errors of all files are collected, not raised one by one.

A unit is a file, or the pair of files of both sides. Workers may read units in any order, and those whose records
consist of lines span by span; the records are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers import (
    delimited,
    gettext,
    labelled_lines,
    mail,
    parallel,
    squad,
    tables,
    tagged,
    text,
    translation_tree,
    xml_pairs,
)
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import WHOLE, SourceFiles, Span, Unit, encoding_of, listed, names
from lexmill.corpora.preparing.splits import GivenFiles
from lexmill.corpora.preparing.text_files import Advance, TextFile, no_advance
from lexmill.params.corpora import Corpus
from lexmill.params.readers import (
    ColumnsReader,
    EncodedReader,
    LabelledLinesReader,
    MailReader,
    ParallelTextReader,
    QuestionsReader,
    Reader,
    RecordsReader,
    SquadReader,
    TextReader,
    TranslationTreeReader,
    UnitsReader,
)


def read(corpus: Corpus, files: SourceFiles, errors: Errors, advance: Advance = no_advance) -> Iterator[Record]:
    """Yield the records of a corpus, in the order of its files.

    Args:
        corpus, files: its kind and reader, and its fetched files.
        errors: collects their errors, each with file and line.
        advance: called with the number of bytes read.
    """
    return read_units(corpus, files.folder, units(corpus, files, errors), errors, advance)


def units(corpus: Corpus, files: SourceFiles, errors: Errors) -> list[Unit]:
    """Return the units to read; none, and an error in `errors`, where the reader does not fit the files."""
    try:
        found = _units(corpus.reader, files, errors)
    except UserError as error:
        errors.add(error)
        return []
    GivenFiles(corpus.splits).check(found, files.folder, errors)
    return found


def _units(reader: Reader, files: SourceFiles, errors: Errors) -> list[Unit]:
    if isinstance(reader, TranslationTreeReader):
        return translation_tree.units(reader, files, errors)
    if isinstance(reader, EncodedReader):
        _check_encodings(reader, files)
    if isinstance(reader, ParallelTextReader):
        return parallel.units(reader, files)
    named = names(files.paths)
    if isinstance(reader, TextReader):
        return text.units(named, reader, errors, files.folder)
    return [(name, (path,)) for path, name in named.items()]


def _check_encodings(reader: EncodedReader, files: SourceFiles) -> None:
    """Raise `UserError` where a file has two encodings, or a glob of `encodings` matches no file."""
    for path in files.paths if reader.encodings else ():
        encoding_of(reader, path)
    for pattern in reader.encodings:
        if not files.matching([pattern]):
            known = listed(files.paths)
            raise UserError(f"reader.encodings: no file matches '{pattern}'; there are: {known}", files.folder)


@dataclass(frozen=True)
class OfLines:
    """A format whose records consist of whole lines, so that its files can be cut between records.

    Attributes:
        inside_after: whether a record continues after a line, from the line and whether one continues in it; None: no.
        by_last_line: whether the line alone decides that.
    """

    inside_after: Callable[[str, bool], bool] | None = None
    by_last_line: bool = False


def of_lines(reader: Reader) -> OfLines | None:
    """How the records of a reader consist of lines; None: its files are read whole."""
    if isinstance(reader, TextReader):
        by_blank_lines = OfLines(lambda line, _: text.inside_after(line), by_last_line=True)
        return {"file": None, "paragraph": by_blank_lines, "line": OfLines()}[reader.document]
    if isinstance(reader, TranslationTreeReader | UnitsReader | SquadReader | MailReader):
        return None
    if isinstance(reader, ColumnsReader):
        # Where a document begins decides what its sentences are called.
        by_blank_lines = OfLines(lambda line, _: tagged.inside_after(line), by_last_line=True)
        return by_blank_lines if reader.group == "sentence" else None
    if isinstance(reader, QuestionsReader) and reader.id is not None:
        return None  # no id may occur twice in a file
    if isinstance(reader, ParallelTextReader | LabelledLinesReader) or tables.file_format(reader) == "jsonl":
        return OfLines()
    if not isinstance(reader, RecordsReader) or reader.format in ("json", "parquet"):
        return None
    return OfLines(partial(delimited.inside_after, reader)) if reader.quoting else OfLines()


def read_units(
    corpus: Corpus,
    folder: Path,
    wanted: Iterable[Unit],
    errors: Errors,
    advance: Advance = no_advance,
    *,
    span: Span = WHOLE,
) -> Iterator[Record]:
    """Yield the records of some units.

    Args:
        corpus, folder: its kind and reader, and the folder of its files.
        wanted: some of `units`, in their order.
        errors: collects the errors of their files.
        advance: called with the number of bytes read.
        span: the lines to read, of a single unit.
    """
    sets = GivenFiles(corpus.splits)
    for name, paths in wanted:
        given = sets.set_of(paths)
        for record in _read_unit(corpus, folder, (name, paths), errors=errors, advance=advance, span=span):
            record.split = given or record.split
            yield record


def _read_unit(
    corpus: Corpus, folder: Path, unit: Unit, *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Record]:
    reader, (name, paths) = corpus.reader, unit
    if isinstance(reader, TranslationTreeReader):
        return translation_tree.read(name, [folder / path for path in paths], errors, advance)
    if isinstance(reader, UnitsReader) and reader.format == "gettext":
        return gettext.read(corpus.languages, name, folder / paths[0], errors=errors, advance=advance)
    if isinstance(reader, UnitsReader):
        return xml_pairs.read(reader, corpus.languages, name, folder / paths[0], errors=errors, advance=advance)
    if isinstance(reader, MailReader):
        return mail.read(reader, name, paths[0], folder / paths[0], errors=errors, advance=advance)
    files = [TextFile(folder / path, encoding_of(reader, path)) for path in paths]
    if isinstance(reader, ParallelTextReader):
        return parallel.read(name, paths, files, span=span, errors=errors, advance=advance)
    if isinstance(reader, TextReader):
        return text.read(reader, name, paths[0], files[0], span=span, errors=errors, advance=advance)
    if isinstance(reader, LabelledLinesReader):
        return labelled_lines.read(reader, name, files[0], span=span, errors=errors, advance=advance)
    if isinstance(reader, SquadReader):
        return squad.read(reader, name, files[0], errors=errors, advance=advance)
    if isinstance(reader, ColumnsReader):
        return tagged.read_columns(reader, name, files[0], span=span, errors=errors, advance=advance)
    return tables.read(corpus, reader, name, files[0], span=span, errors=errors, advance=advance)
