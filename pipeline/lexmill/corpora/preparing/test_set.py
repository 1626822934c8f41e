"""One test set on its own: read and normalised as prepare does, and whole.

Only a rating between the thresholds, which has no label, is left out. Memory: one record.
"""

from __future__ import annotations

from pathlib import Path

from lexmill.base import progress, storage
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing import readers
from lexmill.corpora.preparing.disk_index import DiskSet, open_index
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.record import group_of, normalize_record
from lexmill.corpora.preparing.source_files import SourceFiles
from lexmill.corpora.preparing.writing import Row, SplitWriter, json_line, to_json
from lexmill.params.corpora import Corpus


def prepare_test_set(corpus: Corpus, source: Path, target: Path) -> PreparedCorpus:
    """Write a prepared corpus that has the split `test` alone.

    Args:
        corpus: its kind, reader and normalization.
        source: the folder of its files (`small.linked`, or what fetch made).
        target: an empty folder.

    Raises:
        UserErrors: all errors in the files, each with file and line.
        UserError: they hold no record.
    """
    files, errors = SourceFiles(source), Errors()
    with open_index(target / "index") as index, progress.bar("read the files", files.bytes) as bar:
        writer = SplitWriter(target, "test", DiskSet(index, "groups_of_test"))
        for record in readers.read(corpus, files, errors, bar.update):
            if errors or (corpus.kind == "labelled" and record.label is None):
                continue
            normalize_record(record, corpus.kind, corpus.normalization)
            if record.lost:
                continue
            stored = to_json(record, group_of(record))
            line = json_line(stored)
            writer.write(line, Row.of(stored, 0, line, given=True))
        counts = writer.manifest()
    errors.raise_all()
    if not counts["records"]:
        raise UserError("the test set is empty: its files hold no record to score")
    (target / "index").unlink()
    manifest = {"kind": corpus.kind, "unit": corpus.unit, "languages": list(corpus.languages)}
    tokenized = {"tokenized": True} if corpus.tokenized else {}
    storage.write_json(target / "manifest.json", {**manifest, **tokenized, "splits": {"test": counts}})
    return PreparedCorpus(target)
