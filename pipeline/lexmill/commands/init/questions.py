"""How files of questions are read: in the format of SQuAD, or records with a question, a context and answers each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.commands.init.reading import RECORDS, Reading, suffix
from lexmill.corpora.fetching.files import locate
from lexmill.corpora.preparing.readers.squad import looks_like
from lexmill.corpora.preparing.text_files import open_bytes
from lexmill.params.corpora import FileSource

_KNOWN = ("squad", *dict.fromkeys(RECORDS.values()))
_BEGINNING = 1 << 20  # a context may be long


def reader_of(paths: Sequence[str], reading: Reading, root: Path) -> dict[str, Any]:
    """Return the reader of all files, as plain data; a JSON file says by its keys whether it is in SQuAD's format.

    Raises:
        UserError: several or unknown formats, or options that do not fit.
    """
    chosen, columns = _format(paths, reading, root), {role: name for role, name in reading.columns.items() if name}
    if chosen == "squad":
        given: dict[str, str | None] = {f"--{role}": column for role, column in columns.items()}
        given |= {"--group": reading.group, "--split-column": reading.split}
        if wrong := [option for option, column in given.items() if column]:
            raise UserError(f"{wrong[0]}: files in SQuAD's format have no columns; leave it out")
        return {"format": "squad", **reading.choices}
    group = {"group": reading.group} if reading.group else {}
    return {"format": "questions", "file_format": chosen, **columns, **group, **reading.choices}


def _format(paths: Sequence[str], reading: Reading, root: Path) -> str:
    if reading.format is not None:
        if reading.format not in _KNOWN:
            raise UserError(f"--format {value_text(reading.format)}: it must be one of: {', '.join(_KNOWN)}")
        return reading.format
    found = {_format_of(path) for path in locate(FileSource("file", tuple(paths)), root).values()}
    if len(found) > 1:
        raise UserError(f"the files have several formats ({', '.join(sorted(found))}); give files of one, or --format")
    return found.pop()


def _format_of(path: Path) -> str:
    ending = suffix(path.name)
    if ending not in RECORDS:
        known = ", ".join(RECORDS)
        raise UserError(
            f"{path}: the format {value_text(ending)} is unknown; known: {known}, each also with .gz or .zst"
        )
    if ending != ".json":
        return RECORDS[ending]
    with open_bytes(path) as stream:
        return "squad" if looks_like(stream.read(_BEGINNING)) else "json"
