"""Tables and records: csv, tsv, jsonl, json and parquet files, a column or key for each role.

Memory is one row of csv, tsv or jsonl, a batch of rows of parquet, or the text of a json file. Csv, tsv and jsonl can
be read from any line on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers import conversations, delimited, json_records, parquet, questions, tagged
from lexmill.corpora.preparing.readers.columns import BadValue, Row, shown, text_of
from lexmill.corpora.preparing.readers.labels import BadLabel, in_form, of_set
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import Span
from lexmill.corpora.preparing.splits import given_by_column
from lexmill.corpora.preparing.text_files import Advance, TextFile
from lexmill.params.corpora import Corpus
from lexmill.params.readers import ROLES, LabelForm, QuestionsReader, RecordsReader, RowsReader, TaggedRecordsReader

JOINED = " / "
"""What joins the values of several label columns."""

_LABEL = "labels."  # the role of each of those columns, with its index


def read(
    corpus: Corpus,
    reader: RowsReader,
    name: str,
    file: TextFile,
    *,
    span: Span,
    errors: Errors,
    advance: Advance,
) -> Iterator[Record]:
    """Yield the records of one file.

    A record without a group column, or with an empty value in it, is its own group.
    """
    kind = corpus.kind
    columns = {role: column for role in ROLES[kind] if (column := getattr(reader, role)) is not None}
    if isinstance(reader, RecordsReader):
        columns |= {f"{_LABEL}{i}": column for i, column in enumerate(reader.labels)}
        columns |= {} if reader.second is None else {"second": reader.second}
    if reader.group is not None:
        columns["group"] = reader.group
    if corpus.splits.column is not None:
        columns["split"] = corpus.splits.column
    seen: set[str] = set()  # names of questions
    try:
        for row in _rows(reader, columns, file, span=span, errors=errors, advance=advance):
            try:
                record = _record(kind, reader, columns, f"{name}:{row.place}", row.values)
                if "id" in columns:
                    if record.id in seen:
                        raise BadValue(f"the id {shown(row.values['id'])} occurs before; each question needs its own")
                    seen.add(record.id)
                yield record
            except BadValue as error:
                place = "" if row.place == str(row.line) else f"row {row.place}: "
                errors.add(UserError(f"{place}{error}", file.path, row.line))
    except UserError as error:
        errors.add_last(error)


def _rows(
    reader: RowsReader,
    columns: dict[str, str],
    file: TextFile,
    *,
    span: Span,
    errors: Errors,
    advance: Advance,
) -> Iterator[Row]:
    if isinstance(reader, RecordsReader) and reader.format in ("csv", "tsv"):
        return delimited.read_rows(reader, columns, file, span=span, errors=errors, advance=advance)
    if file_format(reader) == "parquet":
        return parquet.read_rows(columns, file.path, errors=errors, advance=advance)
    if file_format(reader) == "json":
        return json_records.read_array(columns, file, errors=errors, advance=advance)
    return json_records.read_lines(columns, file, span=span, errors=errors, advance=advance)


def file_format(reader: RowsReader) -> str:
    """Return the format of a reader's files."""
    return reader.format if isinstance(reader, RecordsReader) else reader.file_format


# ---------------------------------------------------------------- values


def _record(kind: str, reader: RowsReader, columns: dict[str, str], name: str, row: Mapping[str, Any]) -> Record:
    group = _scalar(columns["group"], row["group"]) if "group" in columns and row["group"] is not None else ""
    if isinstance(reader, QuestionsReader):
        if "id" in columns:
            name = f"{name.rpartition(':')[0]}:{_scalar(columns['id'], row['id'])}"
        record = questions.record(name, group or None, reader, row)
    elif isinstance(reader, TaggedRecordsReader):
        record = tagged.of_lists(reader, name, group or None, columns, row)
    elif not isinstance(reader, RecordsReader):
        record = conversations.record(name, group or None, columns, row)
    elif kind == "parallel":
        source, target = text_of(columns["source"], row["source"]), text_of(columns["target"], row["target"])
        record = Record(name, group or None, source, target)
    else:
        second = text_of(columns["second"], row["second"]) if "second" in columns else None
        record = Record(name, group or None, text_of(columns["text"], row["text"]), second)
    if kind == "labelled" and isinstance(reader, RecordsReader):
        record.label = _joined(columns, row) if reader.labels else _label(reader, columns["label"], row["label"])
    if "split" in columns:
        record.split = _split(columns["split"], row["split"])
    return record


def _split(column: str, value: Any) -> str | None:
    try:
        return given_by_column("" if value is None else _scalar(column, value))
    except ValueError as error:
        raise BadValue(f"'{column}': {error}") from None


def _joined(columns: Mapping[str, str], row: Mapping[str, Any]) -> str:
    """The label of several columns."""
    parts = [(column, _label_text(column, row[role])) for role, column in columns.items() if role.startswith(_LABEL)]
    for column, part in parts:
        if JOINED in part:
            raise BadValue(f"'{column}' holds '{JOINED}', which joins the values of reader.labels")
    return JOINED.join(part for _, part in parts)


def _scalar(column: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "" if math.isnan(value) else str(value)  # NaN: how tables of numbers write that there is none
    return text_of(column, value).strip()


def _label_text(column: str, value: Any) -> str:
    if isinstance(value, list):
        raise BadValue(f"'{column}' holds the list {shown(value)}; for several labels set reader.label_form.kind: set")
    label = "" if value is None else _scalar(column, value)
    if not label:
        raise BadValue(f"the label in '{column}' is empty")
    return label


def _in_form(form: LabelForm, column: str, value: Any) -> str:
    """The label of a cell that holds a number, or several names in one text or a list."""
    try:
        if isinstance(value, list) and form.kind == "set":
            return of_set([_scalar(column, one) for one in value], form)
        return in_form("" if value is None else _scalar(column, value), form)
    except BadLabel as error:
        raise BadValue(f"'{column}': {error}") from None


def _label(reader: RecordsReader, column: str, value: Any) -> str | None:
    if reader.label_form.kind != "name":
        return _in_form(reader.label_form, column, value)
    label = _label_text(column, value)
    if reader.positive_from is None or reader.negative_to is None:
        return label
    try:
        rating = float(label)
    except ValueError:
        rating = math.nan
    if math.isnan(rating):
        raise BadValue(f"the rating in '{column}' is {shown(label)}, not a number")
    if rating >= reader.positive_from:
        return "positive"
    return "negative" if rating <= reader.negative_to else None
