"""Tables and records: csv, tsv, jsonl and parquet files, a column or key for each role.

Memory is one row of csv, tsv or jsonl, or a batch of rows of parquet. Blank lines between rows are skipped. Csv, tsv
and jsonl can be read from any line on; the columns of a csv or tsv are those of its first row.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lexmill.base.budgets import MAX_LINE_BYTES, MAX_ROW_GROUP_BYTES, MIB
from lexmill.base.errors import UserError
from lexmill.base.outside import parsing
from lexmill.base.strict import nearest
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers.parquet_pages import check_pages
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import WHOLE, Span
from lexmill.corpora.preparing.splits import given_by_column
from lexmill.corpora.preparing.text_files import (
    Advance,
    checked_encoding,
    half_character,
    lines,
    no_advance,
)
from lexmill.params.corpora import Corpus, RecordsReader

_ROLES = {"text": ("text",), "labelled": ("text", "label"), "parallel": ("source", "target")}
_PARQUET_BATCH = 1024
_DELIMITERS = (
    ("\t", "tabs", "call it .tsv"),
    (";", "semicolons", "save it with commas (.csv) or tabs (.tsv)"),
    ("|", "bars", "save it with commas (.csv) or tabs (.tsv)"),
    (",", "commas", "call it .csv"),
)

_NO_QUOTING = "if quotes have no meaning in this file, set reader.quoting: false (init: --no-quoting)"

Row = tuple[int, Mapping[str, Any]]
"""A row's line (its number from 1 in a parquet file) and its values by role."""


def read(
    corpus: Corpus, reader: RecordsReader, name: str, file: Path, *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Record]:
    """Yield the records of one file of a text, labelled or parallel corpus.

    A record without a group column, or with an empty value in it, is its own group.
    """
    kind = corpus.kind
    columns = {role: str(getattr(reader, role)) for role in _ROLES[kind]}
    if reader.group is not None:
        columns["group"] = reader.group
    if corpus.splits.column is not None:
        columns["split"] = corpus.splits.column
    try:
        for place, row in _rows(reader, columns, file, span=span, errors=errors, advance=advance):
            try:
                yield _record(kind, reader, columns, f"{name}:{place}", row)
            except _BadValue as error:
                parquet = reader.format == "parquet"
                errors.add(UserError(f"row {place}: {error}", file) if parquet else UserError(str(error), file, place))
    except UserError as error:
        errors.add_last(error)


def _rows(
    reader: RecordsReader, columns: dict[str, str], file: Path, *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Row]:
    if reader.format == "parquet":
        return _parquet_rows(columns, file, advance, errors)
    if reader.format == "jsonl":
        encoding = checked_encoding(reader.encoding)
        numbered = lines(file, encoding, advance, place=span.places[0], stop=span.stop)
        return _json_rows(columns, file, numbered, errors)
    fields = _quoted_fields if reader.quoting else _plain_fields
    # The first row of the file names the columns, also for a span that begins later.
    head = None
    if span.first > 1:
        with suppress(UserError):  # the reader of the first span reports it, and all rows are discarded
            head = next(fields(reader, file, WHOLE, Errors(), no_advance), None)
    return _table_rows(reader, columns, file, fields(reader, file, span, errors, advance), errors=errors, head=head)


def _delimiter(reader: RecordsReader) -> str:
    return "," if reader.format == "csv" else "\t"


# ---------------------------------------------------------------- values


class _BadValue(Exception):
    """A value that cannot be used; the message says why."""


def _record(kind: str, reader: RecordsReader, columns: dict[str, str], name: str, row: Mapping[str, Any]) -> Record:
    group = _scalar(columns["group"], row["group"]) if "group" in columns and row["group"] is not None else ""
    if kind == "parallel":
        source, target = _text(columns["source"], row["source"]), _text(columns["target"], row["target"])
        record = Record(name, group or None, source, target)
    else:
        record = Record(name, group or None, _text(columns["text"], row["text"]))
    if kind == "labelled":
        record.label = _label(reader, columns["label"], row["label"])
    if "split" in columns:
        record.split = _split(columns["split"], row["split"])
    return record


def _split(column: str, value: Any) -> str | None:
    try:
        return given_by_column("" if value is None else _scalar(column, value))
    except ValueError as error:
        raise _BadValue(f"'{column}': {error}") from None


def _text(column: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _BadValue(f"'{column}' holds {_shown(value)}, not text")
    if (half := half_character(value)) is not None:
        raise _BadValue(f"'{column}' holds half a character ({half})")
    return value


def _scalar(column: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "" if math.isnan(value) else str(value)  # NaN: how tables of numbers write that there is none
    return _text(column, value).strip()


def _label(reader: RecordsReader, column: str, value: Any) -> str | None:
    label = "" if value is None else _scalar(column, value)
    if not label:
        raise _BadValue(f"the label in '{column}' is empty")
    if reader.positive_from is None or reader.negative_to is None:
        return label
    try:
        rating = float(label)
    except ValueError:
        rating = math.nan
    if math.isnan(rating):
        raise _BadValue(f"the rating in '{column}' is {_shown(label)}, not a number")
    if rating >= reader.positive_from:
        return "positive"
    return "negative" if rating <= reader.negative_to else None


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _check_columns(columns: Iterable[str], known: Sequence[str], file: Path, line: int | None) -> None:
    """Raise one `UserError` for all columns that a file lacks, each with the nearest known one."""
    absent = [column for column in columns if column not in known]
    if not absent:
        return
    listed = ", ".join(known[:20]) + (" ..." if len(known) > 20 else "")
    hints = [f"there is no column '{column}'" + _near(column, known) for column in absent]
    raise UserError(f"{'; '.join(hints)}; columns: {listed}{_other_delimiter(known)}", file, line)


def _other_delimiter(known: Sequence[str]) -> str:
    """A hint where the only column's name looks like several names with another delimiter between them."""
    if len(known) == 1:
        for mark, name, do in _DELIMITERS:
            if mark in known[0]:
                return f". The file seems to be separated by {name}: {do}"
    return ""


def _near(column: str, known: Sequence[str]) -> str:
    hint = nearest(column, known)
    return hint if hint.startswith(", did") else ""


# ---------------------------------------------------------------- csv and tsv


Fields = tuple[int, list[str]]
"""The line at which a row begins, and its fields."""


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


def _quoted_fields(reader: RecordsReader, file: Path, span: Span, errors: Errors, advance: Advance) -> Iterator[Fields]:
    """Rows of fields in which quotes have their usual meaning."""
    csv.field_size_limit(MAX_LINE_BYTES)  # global to the csv module
    numbered = lines(file, checked_encoding(reader.encoding), advance, place=span.places[0])
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
                raise UserError(f"{message}; {_NO_QUOTING}", file, begins) from None
            message = f"wrong quoting ({error}); {_NO_QUOTING}"
            if "new-line" in str(error):
                message = "a carriage return inside a field; put the field in quotes or remove it"
            errors.add(UserError(message, file, begins))
            continue
        if fields:
            yield begins, fields


def _plain_fields(reader: RecordsReader, file: Path, span: Span, _errors: Errors, advance: Advance) -> Iterator[Fields]:
    """Rows of fields split at every delimiter."""
    delimiter = _delimiter(reader)
    for number, line in lines(file, checked_encoding(reader.encoding), advance, place=span.places[0], stop=span.stop):
        if line:
            yield number, line.split(delimiter)


def _table_rows(
    reader: RecordsReader,
    columns: dict[str, str],
    file: Path,
    rows: Iterator[Fields],
    *,
    errors: Errors,
    head: Fields | None,
) -> Iterator[Row]:
    """Yield the values of rows by role; `head` is the file's first row, if known."""
    known: list[str] = []
    places: dict[str, int] = {}
    for line, fields in rows:
        if not known:
            head = head or (line, fields)
            known = head[1] if reader.header else [str(i) for i in range(len(head[1]))]
            _check_columns(columns.values(), known, file, head[0])
            twice = [column for column in columns.values() if known.count(column) > 1]
            if twice:
                raise UserError(f"two columns are named '{twice[0]}'; rename one", file, head[0])
            places = {role: known.index(column) for role, column in columns.items()}
        assert head is not None
        if reader.header and line == head[0]:
            continue
        if len(fields) != len(known):
            errors.add(UserError(f"{len(fields)} fields where {len(known)} were expected", file, line))
            continue
        yield line, {role: fields[place] for role, place in places.items()}


# ---------------------------------------------------------------- jsonl and parquet


def _json_rows(
    columns: dict[str, str], file: Path, numbered: Iterator[tuple[int, str]], errors: Errors
) -> Iterator[Row]:
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise UserError(f"expected a JSON object, got {_shown(value)}", file, number)
            _check_columns(columns.values(), list(value), file, number)
        except UserError as error:
            errors.add(error)
        except json.JSONDecodeError as raised:
            errors.add(UserError(f"not valid JSON: {raised.msg} (column {raised.colno})", file, number))
        except (RecursionError, ValueError):
            errors.add(UserError("not valid JSON: nested too deep, or a number too long", file, number))
        else:
            yield number, {role: value[column] for role, column in columns.items()}


def _parquet_rows(columns: dict[str, str], file: Path, advance: Advance, errors: Errors) -> Iterator[Row]:
    import pyarrow.parquet

    if not file.is_file():
        raise UserError("the file does not exist; fetch the corpus again", file)
    wanted = sorted(set(columns.values()))
    with parsing(_UNREADABLE, file):
        # A page of 1 KB may hold one text of 16 MiB a thousand times: as a dictionary it is in memory once.
        texts = [one.name for one in pyarrow.parquet.read_schema(file) if _is_text(one.type)]
        table = pyarrow.parquet.ParquetFile(file, pre_buffer=False, read_dictionary=texts)
    with table:
        _check_columns(columns.values(), table.schema_arrow.names, file, None)
        _check_row_groups(table, wanted, file)
        with parsing(_UNREADABLE, file):
            batches = table.iter_batches(_PARQUET_BATCH, columns=wanted)
        number = 0
        while True:
            with parsing(_UNREADABLE, file):
                batch = next(batches, None)
            if batch is None:
                break
            for i in range(len(batch)):
                number += 1
                try:
                    with parsing("a value cannot be read"):
                        values = {column: batch.column(j)[i].as_py() for j, column in enumerate(batch.schema.names)}
                except UserError as error:
                    errors.add(UserError(f"row {number}: {error.message}", file))
                    continue
                yield number, {role: values[column] for role, column in columns.items()}
    advance(file.stat().st_size)


def _is_text(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _check_row_groups(table: Any, columns: Sequence[str], file: Path) -> None:
    """Raise `UserError` where the wanted columns of a row group, or a page, are larger than what memory must hold."""
    with parsing(_UNREADABLE, file):
        for i in range(table.metadata.num_row_groups):
            group = table.metadata.row_group(i)
            chunks = [group.column(j) for j in range(group.num_columns)]
            chunks = [one for one in chunks if one.path_in_schema.split(".")[0] in columns]
            size = sum(one.total_uncompressed_size for one in chunks)
            if not 0 <= size <= MAX_ROW_GROUP_BYTES:
                raise UserError(
                    f"row group {i} claims {size:,} bytes, more than {MAX_ROW_GROUP_BYTES // MIB} MiB; write it with"
                    " smaller row groups",
                    file,
                )
            for one in chunks:
                check_pages(file, one)


_UNREADABLE = "not a readable parquet file"
