"""Small source folders and corpus choices, made for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lexmill.base import storage
from lexmill.base.strict import build
from lexmill.corpora.preparing import readers
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import SourceFiles
from lexmill.params.corpora import Corpus


def make_source(folder: Path, files: dict[str, bytes | str]) -> Path:
    """A source folder as fetch leaves it."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data.encode() if isinstance(data, str) else data)
    listed = [
        {"path": path, "bytes": (folder / path).stat().st_size, "sha256": storage.sha256_file(folder / path)}
        for path in files
    ]
    storage.write_json(folder / "manifest.json", {"files": listed, "source": {}})
    return folder


def corpus_of(kind: str, reader: dict[str, Any], **choices: Any) -> Corpus:
    """A checked corpus entry."""
    errors: list[str] = []
    data = {"kind": kind, "reader": reader, "source": {"kind": "file", "paths": ["x"]}, **choices}
    if kind == "parallel":
        data["languages"] = ["en", "de"]
    corpus = build(Corpus, data, errors)
    assert corpus is not None, errors
    return corpus


def read_all(corpus: Corpus, folder: Path) -> tuple[list[Record], Errors]:
    """All records of a source folder, and the errors of its files."""
    errors = Errors()
    return list(readers.read(corpus, SourceFiles(folder), errors)), errors


def error_texts(errors: Errors) -> list[str]:
    return [str(error) for error in errors.shown]
