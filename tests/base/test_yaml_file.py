"""YAML within a budget: a sentence with file and line for all that is too much, or no plain data."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lexmill.base.errors import UserError
from lexmill.base.yaml_file import MOST_BYTES, MOST_NODES, check_budget, read_yaml

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


def error_of(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    return str(caught.value).replace(str(path), "f")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 2026-13-45", "f:1: '2026-13-45' is not a date; quotes make it text"),
        ("a: 1\nb: !!int abc", "f:2: 'abc' is not a whole number; quotes make it text"),
        ("a: !!int ''", "f:1: '' is not a whole number; quotes make it text"),
        ("a: !!float x", "f:1: 'x' is not a number; quotes make it text"),
        ("a: !thing x", "f:1: the tag '!thing' is not read here; leave it out"),
        ("a: !!python/object:os.system {}", "f:1: the tag '!!python/object:os.system' is not read here; leave it out"),
        ("a: =", "f:1: '=' needs quotes to be text"),
        ("? [1]\n: 2", "f:1: a list or mapping cannot be a key; write a name"),
        ("a: &x [*x]", "f:1: an alias lies in what it stands for; write its value out"),
        (f"a: {'[' * 2000}{']' * 2000}", "f:1: nested more than 50 levels deep; make it flatter"),
        (LAUGHS, "f:6: with its aliases written out, more than 100,000 values and keys"),
        ("x: [" + "1, " * MOST_NODES + "]", "f:1: more than 100,000 values and keys; shorten it"),
        ("# " + "x" * MOST_BYTES, "f: larger than 4 MB, the most of a YAML file here; shorten it"),
    ],
    ids=lambda text: text[:20],
)
def test_each_error_is_a_sentence_with_its_line(text: str, error: str, tmp_path: Path) -> None:
    assert error_of(tmp_path / "f.yaml", text) == error


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000, str(2**65)])
def test_a_number_that_cannot_be_printed_is_too_large(number: str, tmp_path: Path) -> None:
    assert error_of(tmp_path / "f.yaml", f"a: {number}").endswith("is too large a number")


def test_all_wrong_values_are_reported_in_order(tmp_path: Path) -> None:
    text = "a: !x 1\nb: {c: 1, c: 2}\nd: 2026-99-99\n"
    assert [line[:4] for line in error_of(tmp_path / "f.yaml", text).split("\n")] == ["f:1:", "f:2:", "f:3:"]


def test_aliases_within_the_budget_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n")
    assert read_yaml(path) == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}]}


def test_a_file_for_another_reader_is_checked_where_it_may_exceed_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: [wrong")  # the other reader reports this
    check_budget(path)
    path.write_text(LAUGHS)
    begun = time.process_time()
    with pytest.raises(UserError, match="with its aliases written out"):
        check_budget(path)
    assert time.process_time() - begun < 10
