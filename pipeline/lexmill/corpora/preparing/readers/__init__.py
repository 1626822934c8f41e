"""From fetched files to records, one at a time; the faults of all files are gathered, not raised one by one."""

from __future__ import annotations

from collections.abc import Iterator

from lexmill.corpora.preparing.faults import Faults
from lexmill.corpora.preparing.readers import parallel, tables, text, translation_tree
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import SourceFiles
from lexmill.corpora.preparing.text_files import Advance, no_advance
from lexmill.params import Corpus, ParallelTextReader, TextReader, TranslationTreeReader


def read(corpus: Corpus, files: SourceFiles, faults: Faults, advance: Advance = no_advance) -> Iterator[Record]:
    """The records of a corpus, in the order of its files.

    Args:
        corpus: its kind and its reader.
        files: its fetched files.
        faults: gathers what is wrong with them, each with file and line.
        advance: told how many bytes of the files were read.
    """
    reader = corpus.reader
    if isinstance(reader, TextReader):
        return text.read(reader, files, faults, advance)
    if isinstance(reader, ParallelTextReader):
        return parallel.read(reader, files, faults, advance)
    if isinstance(reader, TranslationTreeReader):
        return translation_tree.read(reader, files, faults, advance)
    return tables.read(corpus.kind, reader, files, faults, advance)
