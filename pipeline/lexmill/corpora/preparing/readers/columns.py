"""Rows of tables and records, and the errors of columns that a file lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lexmill.base.cutting import cut
from lexmill.base.errors import UserError
from lexmill.base.strict import nearest
from lexmill.corpora.preparing.text_files import half_character


class Row(NamedTuple):
    """A row of a table or a record.

    Attributes:
        place: unique in its file: its line or number.
        line: the line in which it begins; None: the file has no lines.
        values: its values by role.
    """

    place: str
    line: int | None
    values: Mapping[str, Any]


class BadValue(Exception):
    """A value that cannot be used; the message says why."""


def text_of(column: str, value: Any) -> str:
    """Return a value that must be a text; raise `BadValue`."""
    if not isinstance(value, str):
        raise BadValue(f"'{column}' holds {shown(value)}, not text")
    if (half := half_character(value)) is not None:
        raise BadValue(f"'{column}' holds half a character ({half})")
    return value


def absent(columns: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return the columns that are not known."""
    return [column for column in columns if column not in known]


def check_columns(columns: Iterable[str], known: Sequence[str], file: Path, line: int | None, hint: str = "") -> None:
    """Raise one `UserError` for all columns that a file lacks, each with the nearest known one.

    Args:
        columns, known: the wanted columns, and those of the file.
        file, line: where the columns are named.
        hint: what to do, at the end of the message.
    """
    if missing := absent(columns, known):
        listed = ", ".join(known[:20]) + (" ..." if len(known) > 20 else "")
        said = [f"there is no column '{column}'" + near(column, known) for column in missing]
        raise UserError(f"{'; '.join(said)}; columns: {listed}{hint}", file, line)


def near(column: str, known: Sequence[str]) -> str:
    """Return `, did you mean 'x'?` for the nearest known column, if one is near."""
    hint = nearest(column, known)
    return hint if hint.startswith(", did") else ""


def shown(value: Any) -> str:
    """Return a value as an error shows it."""
    if value is None:
        return "nothing"
    return cut(repr(value), 40)
