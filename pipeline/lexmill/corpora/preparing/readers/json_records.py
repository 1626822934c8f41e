"""Records of JSON: an object a line (jsonl), or a file that is one array of objects (json).

Memory is a line of jsonl. Of json it is the file's text and one record: its objects are read one after another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lexmill.base.errors import UserError
from lexmill.base.shown import key_text
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers.columns import Row, check_columns, shown
from lexmill.corpora.preparing.source_files import LineNames, Span
from lexmill.corpora.preparing.text_files import Advance, TextFile, lines, whole_text

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODE = json.JSONDecoder().raw_decode
_DEEP = "not valid JSON: nested too deep, or a number too long"


def read_lines(
    columns: Mapping[str, str], file: TextFile, *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Row]:
    """Yield the records of a jsonl file; arguments as of `delimited.read_rows`."""
    for number, line in lines(*file, advance, place=span.places[0], stop=span.stop):
        if not line.strip():
            continue
        try:
            values = _values(columns, json.loads(line), file, number)
        except UserError as error:
            errors.add(error)
        except json.JSONDecodeError as raised:
            errors.add(UserError(f"not valid JSON: {raised.msg} (column {raised.colno})", file.path, number))
        except (RecursionError, ValueError):
            errors.add(UserError(_DEEP, file.path, number))
        else:
            yield Row(str(number), number, values)


def read_array(columns: Mapping[str, str], file: TextFile, *, errors: Errors, advance: Advance) -> Iterator[Row]:
    """Yield the records of a json file: of its array of objects, or of the only such array in its object.

    Args:
        columns, file: the key of each role, and the file.
        errors: collects the errors of single records.
        advance: called with the number of bytes read.

    Raises:
        UserError: not JSON, no such array or several, more than `MAX_DOCUMENT_BYTES`; see `text_files.lines`.
    """
    text = whole_text(*file, advance, instead="write it as JSON lines and set reader.format: jsonl")
    cursor, names = _Cursor(text), LineNames()
    line, counted = 1, 0
    try:
        whole = cursor.peek() == "["
        cursor.at = _start_of_records(cursor, file)
        for at, value in cursor.elements():
            line, counted = line + text.count("\n", counted, at), at
            place = names.next(line)
            try:
                yield Row(place, line, _values(columns, value, file, line))
            except UserError as error:
                errors.add(error)
        if whole:
            cursor.end()
    except json.JSONDecodeError as raised:
        message = f"not valid JSON: {raised.msg} (column {raised.colno})"
        raise UserError(message, file.path, raised.lineno) from None
    except (RecursionError, ValueError):
        raise UserError(_DEEP, file.path, text.count("\n", 0, cursor.at) + 1) from None


def _values(columns: Mapping[str, str], value: Any, file: TextFile, line: int) -> dict[str, Any]:
    """The values of a record by role."""
    if not isinstance(value, dict):
        raise UserError(f"expected a JSON object, got {shown(value)}", file.path, line)
    check_columns(columns.values(), list(value), file.path, line)
    return {role: value[column] for role, column in columns.items()}


def _start_of_records(cursor: _Cursor, file: TextFile) -> int:
    """The place of the array of records; raise `UserError` where there is none, or more than one."""
    if cursor.peek() == "[":
        return cursor.at
    found: dict[str, int] = {}
    if cursor.peek() == "{":
        for key in cursor.members():
            if cursor.peek() != "[":
                cursor.value()
                continue
            at = cursor.at
            if sum(isinstance(value, dict) for _, value in cursor.elements()):
                found[key] = at
        cursor.end()
    else:
        cursor.value()
        cursor.end()
    if len(found) == 1:
        return next(iter(found.values()))
    several = ", ".join(key_text(key) for key in found)
    wrong = f"there are several arrays of objects ({several})" if found else "there is no array of objects"
    raise UserError(
        f"{wrong}; give a file with one, [{{...}}, ...], or JSON lines (reader.format: jsonl)", file.path, 1
    )


class _Cursor:
    """Reads a JSON text value by value; raises `json.JSONDecodeError`."""

    def __init__(self, text: str) -> None:
        self._text, self.at = text, 0

    def peek(self) -> str:
        """Return the next character after white space, which is passed; "" at the end."""
        found = _SPACE.match(self._text, self.at)
        assert found is not None
        self.at = found.end()
        return self._text[self.at : self.at + 1]

    def value(self) -> Any:
        """Return the value that begins here, and pass it."""
        self.peek()
        value, self.at = _DECODE(self._text, self.at)
        return value

    def elements(self) -> Iterator[tuple[int, Any]]:
        """Yield the place and value of each element of the array that begins here, and pass it."""
        self._take("[")
        if self.peek() == "]":
            self._take("]")
            return
        more = True
        while more:
            self.peek()
            at = self.at
            yield at, self.value()
            more = self._take(",]") == ","

    def members(self) -> Iterator[str]:
        """Yield each key of the object that begins here; the caller passes its value before the next."""
        self._take("{")
        if self.peek() == "}":
            self._take("}")
            return
        more = True
        while more:
            if self.peek() != '"':
                raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self._text, self.at)
            key = self.value()
            self._take(":")
            yield key
            more = self._take(",}") == ","

    def end(self) -> None:
        """Check that nothing follows."""
        if self.peek():
            raise json.JSONDecodeError("Extra data", self._text, self.at)

    def _take(self, wanted: str) -> str:
        found = self.peek()
        if not found or found not in wanted:
            raise json.JSONDecodeError(f"Expecting {' or '.join(map(repr, wanted))}", self._text, self.at)
        self.at += 1
        return found
