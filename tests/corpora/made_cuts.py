"""Corpora whose files can be cut, an executor that cuts them small, and what is read of them in pieces."""

import json

import pytest

from lexmill.base.errors import UserErrors
from lexmill.compute.workers.executor import Here
from lexmill.corpora.preparing import pieces, readers
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.source_files import SourceFiles
from lexmill.corpora.preparing.spans import find_spans, large_units
from tests.corpora.made_sources import corpus_of, error_texts, read_all

QUOTED = {"format": "csv", "text": "t", "group": "g"}
PAIRS = {"format": "parallel_text", "source": ["*.en"], "target": ["*.de"]}
CORPORA = {
    "lines": corpus_of("text", {"format": "text", "document": "line"}),
    "latin-1": corpus_of("text", {"format": "text", "document": "line", "encoding": "latin-1"}),
    "paragraphs": corpus_of("text", {"format": "text", "document": "paragraph"}),
    "jsonl": corpus_of("text", {"format": "jsonl", "text": "t", "group": "g"}),
    "csv": corpus_of("text", QUOTED),
    "csv without header": corpus_of("text", {"format": "csv", "text": "1", "header": False}),
    "tsv": corpus_of("text", {**QUOTED, "format": "tsv"}),
    "tsv without quotes": corpus_of("text", {**QUOTED, "format": "tsv", "quoting": False}),
    "conll": corpus_of("tagged", {"format": "conll", "separator": "tab", "scheme": "iob2", "comment": "//"}),
    "parallel": corpus_of("parallel", PAIRS),
}


class Pieces(Here):
    """Works here, on pieces."""

    alone = False

    def __init__(self, piece_bytes):
        self.piece_bytes = piece_bytes


def cut(corpus, folder, piece_bytes):
    """The pieces of a source folder."""
    files, errors = SourceFiles(folder), Errors()
    units = readers.units(corpus, files, errors)
    assert not errors
    common = pieces.common(corpus, folder, folder)
    large = large_units(corpus, units, files, piece_bytes)
    found = find_spans(large, files, Pieces(piece_bytes), common, lambda _: None)
    return pieces.cut(units, files, piece_bytes, found)


def read_in_pieces(corpus, folder, items):
    """Records of each piece, and all errors as the stage gathers them."""
    found, together = [], Errors()
    for item in items:
        errors = Errors()
        span = {"span": item["span"]} if "span" in item else {}
        found.append(list(readers.read_units(corpus, folder, item["units"], errors, **span)))
        together.merge(json.loads(json.dumps(errors.as_plain(folder))), folder)
    return found, together


def same(corpus, folder, piece_bytes):
    """Read in pieces what was also read whole; gives the count of pieces."""
    wanted, message = read_all(corpus, folder)
    items = cut(corpus, folder, piece_bytes)
    found, errors = read_in_pieces(corpus, folder, items)
    assert (errors.count, error_texts(errors)) == (message.count, error_texts(message))
    if message:
        with pytest.raises(UserErrors) as first:
            message.raise_all()
        with pytest.raises(UserErrors) as second:
            errors.raise_all()
        assert first.value.errors == second.value.errors
    else:
        assert [record for piece in found for record in piece] == wanted
    return len(items)
