"""Reads data from outside: any error of a library's parser, and JSON beyond its budget, becomes a `UserError`."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lexmill.base.budgets import MAX_JSON_BYTES, MAX_JSON_DEPTH, MAX_VOCABULARY, MIB
from lexmill.base.cutting import cut
from lexmill.base.errors import LexmillError, UserError
from lexmill.base.shown import value_text

_MOST_SHOWN = 300
_FILES = (None, errno.EINVAL, errno.EOVERFLOW)  # errors of a file's contents: a seek to before its start


@contextmanager
def parsing(message: str, file: str | Path | None = None) -> Iterator[None]:
    """Turn any exception of a library that reads foreign bytes into a `UserError`.

    Parsers raise whatever the bytes lead them to (ValueError, KeyError, RecursionError, a panic of Rust ...), so the
    list of types is open. Our own errors and the machine's (an `OSError` with a number) pass. Enclose only the
    library's call: here an error of ours would be taken for one of the file.

    Args:
        message: what is wrong then; the library's own words follow in brackets.
        file: the file.
    """
    try:
        yield
    except LexmillError:
        raise
    except MemoryError:
        raise UserError(f"{message} (it asks for more memory than there is)", file) from None
    except BaseException as error:
        panic = type(error).__name__ == "PanicException"  # pyo3 derives it from BaseException and exports it nowhere
        if not (panic or isinstance(error, Exception)) or (isinstance(error, OSError) and error.errno not in _FILES):
            raise
        said = " ".join(str(error).split()) or type(error).__name__
        said = cut(said, _MOST_SHOWN)
        raise UserError(f"{message} ({said})", file) from None


def parse_json(data: bytes, file: str | Path | None = None) -> Any:
    """Return the value of JSON from outside.

    Raises:
        UserError: it is not JSON in UTF-8, or nested deeper than `MAX_JSON_DEPTH`.
    """
    try:
        value = json.loads(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"not valid JSON: {error.msg} (column {error.colno})", file, error.lineno) from None
    except UnicodeDecodeError as error:
        raise UserError(f"not valid JSON: byte {error.start + 1} is not UTF-8", file) from None
    except RecursionError:
        raise UserError(_DEEP, file) from None
    except ValueError:
        raise UserError("not valid JSON: a number with too many digits", file) from None
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        if depth > MAX_JSON_DEPTH:
            raise UserError(_DEEP, file)
        level = [inner for one in level for inner in _values(one)]
    return value


def whole_number(value: Any, name: str) -> int:
    """Return a size; raise `UserError` unless it is a whole number from 1 to `MAX_VOCABULARY`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_VOCABULARY:
        raise UserError(f"{name} is {value_text(value)}; a whole number from 1 to {MAX_VOCABULARY:,} is expected")
    return value


def finite_number(value: Any, name: str) -> float:
    """Return a number; raise `UserError` for any other value."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:  # a whole number of more than 308 digits
        number = math.inf
    if not math.isfinite(number):
        raise UserError(f"{name} is {value_text(value)}; a number is expected")
    return number


_DEEP = f"JSON nested deeper than {MAX_JSON_DEPTH} levels; no file read here is"


def _values(one: dict[str, Any] | list[Any]) -> Any:
    return one.values() if isinstance(one, dict) else one


def read_json_file(path: str | Path) -> Any:
    """Return the value of a JSON file from outside.

    Raises:
        UserError: it is no file, larger than `MAX_JSON_BYTES`, not JSON in UTF-8, or nested too deep.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError("there is no such file", path)
    if path.stat().st_size > MAX_JSON_BYTES:
        raise UserError(f"larger than {MAX_JSON_BYTES // MIB} MiB, which no JSON file read here is", path)
    return parse_json(path.read_bytes(), path)


def read_json_object(path: str | Path) -> dict[str, Any]:
    """Return a JSON object from outside; raise `UserError` as `read_json_file`, or where it is another value."""
    value = read_json_file(path)
    if not isinstance(value, dict):
        raise UserError("not a JSON object", path)
    return value
