"""From fetched files to records, one at a time; the faults of all files are gathered, not raised one by one.

A unit is what must be read in one go: a file, or the two files of both sides. Units are read in their order or far
from each other; the records are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lexmill.corpora.preparing.faults import Faults
from lexmill.corpora.preparing.readers import parallel, tables, text, translation_tree
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import SourceFiles, Unit, names
from lexmill.corpora.preparing.text_files import Advance, checked_encoding, no_advance
from lexmill.errors import UserError
from lexmill.params import Corpus, ParallelTextReader, TextReader, TranslationTreeReader


def read(corpus: Corpus, files: SourceFiles, faults: Faults, advance: Advance = no_advance) -> Iterator[Record]:
    """The records of a corpus, in the order of its files.

    Args:
        corpus: its kind and its reader.
        files: its fetched files.
        faults: gathers what is wrong with them, each with file and line.
        advance: told how many bytes of the files were read.
    """
    return read_units(corpus, files.folder, units(corpus, files, faults), faults, advance)


def units(corpus: Corpus, files: SourceFiles, faults: Faults) -> list[Unit]:
    """What there is to read; none where `faults` was told that the reader does not fit the files."""
    reader = corpus.reader
    try:
        if isinstance(reader, TranslationTreeReader):
            return translation_tree.units(reader, files, faults)
        checked_encoding(reader.encoding)
        if isinstance(reader, ParallelTextReader):
            return parallel.units(reader, files)
    except UserError as fault:
        faults.add(fault)
        return []
    return [(name, (path,)) for path, name in names(files.paths).items()]


def read_units(
    corpus: Corpus, folder: Path, wanted: Iterable[Unit], faults: Faults, advance: Advance = no_advance
) -> Iterator[Record]:
    """The records of some units.

    Args:
        corpus: its kind and its reader.
        folder: where the files lie.
        wanted: some of `units`, in their order.
        faults: gathers what is wrong with their files.
        advance: told how many bytes of the files were read.
    """
    reader = corpus.reader
    for name, paths in wanted:
        files = [folder / path for path in paths]
        if isinstance(reader, TextReader):
            yield from text.read(reader, name, files[0], faults, advance)
        elif isinstance(reader, ParallelTextReader):
            yield from parallel.read(reader, name, paths, files, faults=faults, advance=advance)
        elif isinstance(reader, TranslationTreeReader):
            yield from translation_tree.read(name, files, faults, advance)
        else:
            yield from tables.read(corpus.kind, reader, name, files[0], faults=faults, advance=advance)
