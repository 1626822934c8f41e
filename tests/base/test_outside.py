"""Data from outside: any error of a parser becomes one sentence with the file; JSON has a budget of size and depth."""

from __future__ import annotations

import errno
import math
from pathlib import Path

import pytest

from lexmill.base import outside
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.outside import parse_json, parsing, read_json_file, read_json_object
from lexmill.base.shown import value_text


class PanicException(BaseException):
    """As pyo3 raises it where Rust panics."""


@pytest.mark.parametrize(
    "error", [ValueError("x\ny"), KeyError("x"), RecursionError(), PanicException("x"), OSError("x")]
)
def test_any_error_of_a_parser_is_the_files(error: BaseException) -> None:
    with pytest.raises(UserError, match=r"^a\.bin: not readable \(.+\)$"), parsing("not readable", "a.bin"):
        raise error


def test_a_parser_that_wants_more_memory_than_there_is() -> None:
    with pytest.raises(UserError, match=r"it asks for more memory than there is"), parsing("not readable"):
        raise MemoryError


@pytest.mark.parametrize(
    "error",
    [RetryableError("x"), UserError("x"), OSError(errno.EIO, "x"), OSError(errno.ENOSPC, "x"), KeyboardInterrupt()],
)
def test_our_own_errors_and_the_machines_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, parsing("not readable"):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1,\n]', r"x:2: not valid JSON: .* \(column 1\)"),
        (b'"\xff"', "x: not valid JSON: byte 2 is not UTF-8"),
        (b"[" * 101 + b"]" * 101, "x: JSON nested deeper than 100 levels"),
        (b"[" * 100_000, "x: JSON nested deeper than 100 levels"),
        (b'{"a":' * 100_000, "x: JSON nested deeper than 100 levels"),
        (b"1" * 5000, "x: not valid JSON: a number with too many digits"),
    ],
)
def test_wrong_json_is_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        parse_json(data, "x")
    assert parse_json(b"[" * 100 + b"]" * 100) is not None


def test_a_json_file_has_a_budget_and_an_object_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(UserError, match="there is no such file"):
        read_json_file(path)
    path.write_text("[1]", encoding="utf-8")
    assert read_json_file(path) == [1]
    with pytest.raises(UserError, match=r"a\.json: not a JSON object"):
        read_json_object(path)
    monkeypatch.setattr(outside, "MAX_JSON_BYTES", 2)
    with pytest.raises(UserError, match="larger than"):
        read_json_file(path)


@pytest.mark.parametrize("value", [None, True, "1", [1], math.nan, math.inf, 10**400, -(10**400)], ids=value_text)
def test_what_is_no_number_is_one_sentence(value: object) -> None:
    with pytest.raises(UserError, match=r"n_embd is .*; a number is expected"):
        outside.finite_number(value, "n_embd")


@pytest.mark.parametrize("value", [None, True, 1.5, "8", 0, -1, 2**40, 10**5000], ids=value_text)
def test_what_is_no_size_is_one_sentence(value: object) -> None:
    with pytest.raises(UserError, match=r"n_embd is .*; a whole number from 1 to 16,777,216 is expected"):
        outside.whole_number(value, "n_embd")


def test_numbers_are_returned() -> None:
    assert (outside.finite_number(3, "x"), outside.finite_number(-1e-5, "x")) == (3.0, -1e-5)
    assert outside.whole_number(768, "x") == 768
