"""Rows of csv and tsv files, with any delimiter, with and without quotes.

Memory is one row. Blank lines between rows are skipped. A file can be read from any line on; its columns are those of
its first row.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from lexmill.base.budgets import MAX_LINE_BYTES
from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers.columns import Row, absent, check_columns, near
from lexmill.corpora.preparing.source_files import WHOLE, Span
from lexmill.corpora.preparing.text_files import Advance, TextFile, lines, no_advance
from lexmill.params.readers import RecordsReader

_NO_QUOTING = "if quotes have no meaning in this file, set reader.quoting: false (init: --no-quoting)"
_CANDIDATES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}
_LINES_TRIED = 20  # for a delimiter that fits

Fields = tuple[int, list[str]]
"""The line at which a row begins, and its fields."""


def read_rows(
    reader: RecordsReader,
    columns: dict[str, str],
    file: TextFile,
    *,
    span: Span,
    errors: Errors,
    advance: Advance,
) -> Iterator[Row]:
    """Yield the rows of a csv or tsv.

    Args:
        reader, columns: its choices, and the column of each role.
        file: the file, and the codec of its text.
        span: the lines to read.
        errors: collects the errors that do not end the reading.
        advance: called with the number of bytes read.

    Raises:
        UserError: columns that are not there, a quoted field without end; see `text_files.lines`.
    """
    fields = _quoted_fields if reader.quoting else _plain_fields
    # The first row of the file names the columns, also for a span that begins later.
    head = None
    if span.first > 1:
        with suppress(UserError):  # the reader of the first span reports it, and all rows are discarded
            head = next(fields(reader, file, WHOLE, Errors(), no_advance), None)
    width, places = 0, {}
    for line, row in fields(reader, file, span, errors, advance):
        if not width:
            head = head or (line, row)
            width, places = len(head[1]), _places(reader, columns, head, file)
        assert head is not None
        if reader.header and line == head[0]:
            continue
        if len(row) != width:
            errors.add(UserError(f"{len(row)} fields where {width} were expected", file.path, line))
            continue
        yield Row(str(line), line, {role: row[place] for role, place in places.items()})


def inside_after(reader: RecordsReader, line: str, inside: bool) -> bool:
    """Whether a quoted field continues after a line (without its end); `inside`: whether one continues in this line."""
    if '"' not in line:
        return inside
    csv.field_size_limit(MAX_LINE_BYTES)
    asked_for_more = False

    def this_line() -> Iterator[str]:
        nonlocal asked_for_more
        yield f'"{line}\n' if inside else f"{line}\n"
        asked_for_more = True

    # As the csv module reads it: after wrong quoting it starts again with the next line.
    with suppress(csv.Error):
        next(csv.reader(this_line(), delimiter=_delimiter(reader), strict=True))
    return asked_for_more


def _delimiter(reader: RecordsReader) -> str:
    if reader.delimiter is not None:
        return reader.delimiter
    return "," if reader.format == "csv" else "\t"


def _places(reader: RecordsReader, columns: dict[str, str], head: Fields, file: TextFile) -> dict[str, int]:
    """The index of each role's column; `head` is the file's first row."""
    line, row = head
    known = row if reader.header else [str(i) for i in range(len(row))]
    wanted = list(columns.values())
    hint = _hint(reader, wanted, known, file) if absent(wanted, known) else ""
    check_columns(wanted, known, file.path, line, hint)
    twice = [column for column in wanted if known.count(column) > 1]
    if twice:
        raise UserError(f"two columns are named '{twice[0]}'; rename one", file.path, line)
    return {role: known.index(column) for role, column in columns.items()}


def _quoted_fields(
    reader: RecordsReader, file: TextFile, span: Span, errors: Errors, advance: Advance
) -> Iterator[Fields]:
    """Rows of fields in which quotes have their usual meaning."""
    csv.field_size_limit(MAX_LINE_BYTES)  # global to the csv module
    numbered = lines(*file, advance, place=span.places[0])
    last = span.first - 1
    inside = span.inside
    while inside and last + 1 < span.stop:
        last, line = next(numbered, (span.stop, ""))
        inside = inside_after(reader, line, inside)

    def given() -> Iterator[str]:
        nonlocal last
        for last, line in numbered:  # noqa: B007
            yield f"{line}\n"

    rows = csv.reader(given(), delimiter=_delimiter(reader), strict=True)
    while (begins := last + 1) < span.stop:
        try:
            fields = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if "field limit" in str(error):
                message = f"a quoted field that begins here does not end within {MAX_LINE_BYTES >> 20} MiB"
                raise UserError(f"{message}; {_NO_QUOTING}", file.path, begins) from None
            message = f"wrong quoting ({error}); {_NO_QUOTING}"
            if "new-line" in str(error):
                message = "a carriage return inside a field; put the field in quotes or remove it"
            errors.add(UserError(message, file.path, begins))
            continue
        if fields:
            yield begins, fields


def _plain_fields(
    reader: RecordsReader, file: TextFile, span: Span, _errors: Errors, advance: Advance
) -> Iterator[Fields]:
    """Rows of fields split at every delimiter."""
    delimiter = _delimiter(reader)
    for number, line in lines(*file, advance, place=span.places[0], stop=span.stop):
        if line:
            yield number, line.split(delimiter)


# ---------------------------------------------------------------- hints for columns that are not there


def _hint(reader: RecordsReader, wanted: Sequence[str], known: Sequence[str], file: TextFile) -> str:
    """Return what to set where another delimiter, or no header, fits the first lines better; "" where nothing does."""
    first: list[str] = []
    with suppress(UserError):  # it is reported when that line is read
        first.extend(line for _, line in islice(lines(*file), _LINES_TRIED) if line)
    if mark := _fitting(reader, wanted, known, first):
        written = '"\\t"' if mark == "\t" else f"'{mark}'"
        option = "'\\t'" if mark == "\t" else f"'{mark}'"
        set_it = f"set reader.delimiter: {written} (init: --delimiter {option})"
        return f". The fields seem to be separated by {_CANDIDATES[mark]}: {set_it}"
    if reader.header and not any(column in known or near(column, known) for column in wanted):
        set_it = "set reader.header: false (init: --no-header) and number the columns from 0"
        return f". If line 1 is no header but data, {set_it}"
    return ""


def _fitting(reader: RecordsReader, wanted: Sequence[str], known: Sequence[str], first: list[str]) -> str | None:
    """The delimiter that gives the header all wanted columns, or of one column the only one that cuts lines alike."""
    cut = {mark: rows for mark in _CANDIDATES if (rows := _cut(reader, mark, first)) and len(rows[0]) > 1}
    if reader.header:
        named = [mark for mark, rows in cut.items() if set(wanted) <= set(rows[0])]
        if named:
            return named[0]
    if len(known) > 1:
        return None
    alike = [mark for mark, rows in cut.items() if len(rows) > 2 and len({len(row) for row in rows}) == 1]
    return alike[0] if len(alike) == 1 else None


def _cut(reader: RecordsReader, mark: str, first: Sequence[str]) -> list[list[str]]:
    """The fields of lines with another delimiter; none where quotes make no sense with it."""
    if not reader.quoting:
        return [line.split(mark) for line in first]
    try:
        return [row for line in first for row in csv.reader([f"{line}\n"], delimiter=mark)]
    except csv.Error:
        return []
