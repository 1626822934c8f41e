"""Foreign values and texts in messages: bounded, and harmless to a terminal."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.table import Table

from lexmill.base import progress
from lexmill.base.errors import RetryableError, UserError, UserErrors
from lexmill.base.shown import MOST, key_text, print_line, print_table, value_text, visible


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        ("a\x1b[2J", "'a\\x1b[2J'"),
        ([1, {"a": None}], "[1, {'a': None}]"),
        (("x",), "['x']"),
        ([10**5000], "[a whole number of 5,001 digits]"),
        (datetime.date(2026, 1, 31), "2026-01-31"),
        ("x" * 100, "'" + "x" * 56 + "..."),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_a_value_that_is_huge_when_printed_costs_no_more_than_its_text() -> None:
    laughs: Any = "x"
    for _ in range(200):
        laughs = [laughs] * 200
    assert len(value_text(laughs)) == MOST
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    assert value_text(cyclic) == "[" * (MOST - 3) + "..."


def test_a_key_is_shown_without_quotes() -> None:
    assert key_text("a/b") == "a/b"
    assert len(key_text("x" * 1000)) == MOST


def test_control_characters_are_visible_and_text_stays() -> None:
    assert visible("a\x1b[31m\x9b\r\x00\u202eb\ud800") == "a\\x1b[31m\\x9b\\x0d\\x00\\u202eb\\ud800"
    kept = "tab\t newline\n é 文 \u0639\u200f \U0001f600"
    assert visible(kept) == kept


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at https://me:hush@host/a: no", "at https://host/a: no"),
        ("two: http://hush@h/a, 'postgresql://u:hush@db/x'", "two: http://h/a, 'postgresql://db/x'"),
        (
            "GET https://h/a?x=1&sig=hush&X-Amz-Signature=hush failed",
            "GET https://h/a?x=1&sig=***&X-Amz-Signature=*** failed",
        ),
        ("https://h/a?token=hush#part", "https://h/a?token=***#part"),
        ("https://h/a@b?page=2&design=x", "https://h/a@b?page=2&design=x"),
        ("git@host:a/b and me:other@host without a scheme", "git@host:a/b and me:other@host without a scheme"),
        (
            "https://h/#/experiments/1/runs?viewStateShareKey=lexmill",
            "https://h/#/experiments/1/runs?viewStateShareKey=lexmill",
        ),
    ],
)
def test_addresses_are_shown_without_their_secrets(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert str(RetryableError(text)) == str(UserError(text)) == str(UserErrors([text])) == shown
    assert UserError(text).message == shown


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = visible(text)
    assert not {one for one in shown if one < " " or "\x7f" <= one <= "\x9f"} - {"\n", "\t"}
    shown.encode()
    assert visible(shown) == shown


def test_all_messages_pass_through(capsys: pytest.CaptureFixture[str]) -> None:
    progress.say("said \x1b[2J")
    print_line(UserErrors(["an error \x1b]0;title\x07"]))
    assert progress.Bar("read \x1b", None).description == "read \\x1b"
    assert progress.shown_text({"label": "\x1b"}) == "label \\x1b"
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "\\x1b[2J" in printed.err
    assert "\\x1b]0;title\\x07" in printed.out


def test_many_and_long_errors_are_cut() -> None:
    many = str(UserErrors([f"error {i}" for i in range(10_000)]))
    assert many.endswith("error 199\nand 9,800 more errors")
    assert len(str(UserErrors(["x" * 10**6]))) < 5000


def test_tables_show_texts_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Rich would read `[/a]` as its own markup, and fail."""
    table = Table("head \x1b[2J", title="results of '[/a] \u202e'")
    table.add_row("[red]a[/b] :smile: \x1b]0;x\x07 http://me:hush@host")
    print_table(table)
    printed = capsys.readouterr().out
    assert "results of '[/a] \\u202e'" in printed
    assert "head \\x1b[2J" in printed
    assert "[red]a[/b] :smile: \\x1b]0;x\\x07 http://host" in printed
    assert "\x1b" not in printed


def test_columns_are_aligned_by_the_cells_that_texts_take(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("text", "n")
    for text in ("日本語", "latin", "한국어", "e\u0301te\u0301"):
        table.add_row(text, "1")
    print_table(table)
    rows = [line for line in capsys.readouterr().out.splitlines() if " 1 " in line]
    assert {cell_len(row[: row.rindex("1")]) for row in rows} == {11}


def test_a_long_value_is_cut_between_characters() -> None:
    assert value_text("Zażółć 👩\u200d🚀"[:-1] + "क्षि" * 30, 40).endswith("षि...")
    middle = str(UserError("e\u0301" * 4000))
    assert all(part.replace("e\u0301", "") == "" for part in middle.split(" ... "))
