"""Records of JSON: a line each (jsonl)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers.columns import Row, check_columns, shown
from lexmill.corpora.preparing.source_files import Span
from lexmill.corpora.preparing.text_files import Advance, TextFile, lines


def read_lines(
    columns: dict[str, str], file: TextFile, *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Row]:
    """Yield the records of a jsonl file; arguments as of `delimited.read_rows`."""
    for number, line in lines(*file, advance, place=span.places[0], stop=span.stop):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise UserError(f"expected a JSON object, got {shown(value)}", file.path, number)
            check_columns(columns.values(), list(value), file.path, number)
        except UserError as error:
            errors.add(error)
        except json.JSONDecodeError as raised:
            errors.add(UserError(f"not valid JSON: {raised.msg} (column {raised.colno})", file.path, number))
        except (RecursionError, ValueError):
            errors.add(UserError("not valid JSON: nested too deep, or a number too long", file.path, number))
        else:
            yield Row(str(number), number, {role: value[column] for role, column in columns.items()})
