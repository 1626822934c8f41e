"""The entry of conf/corpus/ for a user's files: how they are read, and which of them are in which split."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lexmill.base.encodings import WIDE
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build
from lexmill.commands.init import languages as of_files
from lexmill.commands.init import questions
from lexmill.commands.init.encodings import encodings, is_in
from lexmill.commands.init.reading import Kind, Reading, format_of, reader_of, records_format, split_files
from lexmill.corpora.fetching.files import locate
from lexmill.params.corpora import Corpus, FileSource

_MOST_SHOWN = 5  # files whose encoding is said
_MOST_NAMED = 20  # files with an encoding of their own


def corpus_entry(
    kind: Kind, paths: Sequence[str], reading: Reading, languages: str | None, root: Path
) -> dict[str, Any]:
    """Return the entry of conf/corpus/: source, reader, splits, filters that fit the kind.

    Args:
        paths: the files of train, or of all splits.
        reading: how they are read, with paths of valid and test.
        languages: as for `initialize`.
        root: the workspace.

    Raises:
        UserError: files of several formats, a format unfit for this kind, or options that do not fit.
    """
    everything = [*paths, *reading.valid, *reading.test]
    if kind == "questions":
        reader = questions.reader_of(everything, reading, root)
        chosen = reader["format"]
    else:
        chosen = format_of(kind, everything, reading, root)
        reader = reader_of(chosen, reading)
    if chosen == "tagged_records":
        reader["file_format"] = records_format(everything[0])
    if folders := chosen == "folders":
        sets = ([_texts_in(path, root) for path in some] for some in (paths, reading.valid, reading.test))
        paths, valid, test = sets
        reading = dataclasses.replace(reading, valid=valid, test=test)
        everything = [*paths, *valid, *test]
    source = FileSource("file", tuple(everything), keep_folder=folders)
    files_of = locate(source, root)
    files, sides = split_files(chosen == "parallel_text", paths, reading, files_of, root)
    reader |= sides
    of_test = 0.1 if kind in ("labelled", "tagged", "questions") else 0.05
    splits: dict[str, Any] = {"valid": 0.05, "test": of_test, "salt": "lexmill"}
    splits |= {"files": files} if files else {}
    splits |= {"column": reading.split} if reading.split else {}
    entry: dict[str, Any] = {
        "kind": kind,
        "unit": _unit(kind, reading.group),
        "languages": of_files.choose(kind, reader, languages, files_of.values()),
        "licence": "",
        "source": {"kind": "file", "paths": everything, "sha256": []} | ({"keep_folder": True} if folders else {}),
        "reader": reader,
        "normalization": "NFC",
        "splits": splits,
    }
    if kind == "parallel":
        entry["filters"] = {"min_words": 1, "max_words": 150, "min_length_ratio": 0.2, "max_length_ratio": 5.0}
    return entry


def _unit(kind: Kind, group: str | None) -> str:
    """Return what a group is called."""
    if kind == "tagged":
        return group or "sentence"
    return "group" if group else "context" if kind == "questions" else "record"


def _texts_in(path: str, root: Path) -> str:
    """Return a glob of the texts of a folder: of a label, or of a folder with one for each label."""
    folder = root / path
    if not folder.is_dir():
        return path  # a file or a glob
    labels = any(one.is_dir() and any(one.iterdir()) for one in folder.iterdir())
    return f"{path.rstrip('/')}/*/*" if labels else f"{path.rstrip('/')}/*"


def typed(entry: dict[str, Any]) -> Corpus:
    errors: list[str] = []
    corpus = build(Corpus, entry, errors)
    if corpus is None or errors:
        raise UserErrors(errors)
    return corpus


def located(corpus: Corpus, root: Path) -> dict[str, Path]:
    assert isinstance(corpus.source, FileSource)
    return locate(corpus.source, root)


def from_workspace(file: Path, root: Path) -> str:
    """Return the path for params.yaml: relative if it is inside the workspace, else absolute."""
    path = Path(os.path.abspath(os.path.expanduser(file)))
    home = Path(os.path.abspath(root))
    try:
        str(file).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(file).decode("utf-8", "backslashreplace")
        raise UserError(f"the name {shown} is not UTF-8; rename the file") from None
    return path.relative_to(home).as_posix() if path.is_relative_to(home) else path.as_posix()


def note_encodings(entry: dict[str, Any], root: Path, expected: str = "utf-8") -> list[str]:
    """Write the encodings of files that are not UTF-8 into the reader, unless it names one; return sentences.

    Args:
        entry: of conf/corpus/; its reader is changed.
        root: the workspace.
        expected: the encoding to prefer where a file is not UTF-8.

    Raises:
        UserError: files are in several encodings, too many to name each.
        UserErrors: see `encodings`.
    """
    reader = entry["reader"]
    if "encoding" in reader or reader.get("file_format", reader["format"]) in ("parquet", "tmx", "xliff", "gettext"):
        return []
    files = located(typed(entry), root)
    found = encodings(files, expected)
    kinds = {encoding for encoding, _ in found.values()}
    others = [path for name, path in files.items() if name not in found]
    if len(kinds) == 1 and not (others and kinds & set(WIDE)) and all(is_in(path, "ascii") for path in others):
        reader["encoding"] = kinds.pop()
    elif len(found) > _MOST_NAMED:
        both = ", ".join(sorted(kinds))
        raise UserError(f"{len(found):,} of {len(files):,} files are not UTF-8 but seem to be {both}; say --encoding")
    elif found:
        reader["encodings"] = {name: encoding for name, (encoding, _) in found.items()}
    some = list(found.items())[:_MOST_SHOWN]
    more = [f"and {len(found) - len(some):,} more such files"] if len(found) > len(some) else []
    said = [
        f"encoding: {name} is not UTF-8 and is read as {encoding} ('{example}'); --encoding sets another"
        for name, (encoding, example) in some
    ]
    return said + more
