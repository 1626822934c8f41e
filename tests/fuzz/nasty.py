"""Nasty input: mutations of a valid YAML file, and what a door may do with it within its budget.

A door succeeds or raises `UserError`: sentences, never a traceback. `LEXMILL_FUZZ=2000 pytest tests/fuzz` tries so many
examples of each test; without it, few, the same ones each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from tests.fuzz.budget import within

SECONDS, MEGABYTES = 20.0, 400  # of one example
BOMB = "[&a [x, x, x, x, x, x, x, x, x], " + ", ".join(
    f"&{'abcdefghij'[i]} [{', '.join(['*' + 'abcdefghij'[i - 1]] * 9)}]" for i in range(1, 10)
)
# As they are written in the file.
VALUES = (
    *("null", "~", "true", "[]", "{}", "''", "' '", "0", "-1", "1", "2", "3.5", "-0.0", ".nan", ".inf", "-.inf"),
    *("1e30", "1.0e+30", "1e-320", "1e400", str(10**12), str(2**53), str(2**63), str(2**64), str(10**30), "9" * 5000),
    *("0x" + "f" * 5000, "1:2:3", "1_000", "0b1", "007", "2026-01-31", "2026-13-45", "2026-01-01 99:00:00", "12:30:45"),
    *("!!int abc", "!!int ''", "!!float x", "!!bool 3", "!!set {a}", "!!binary x", "!!omap [a: 1]", "!!python/none x"),
    *("!unknown x", "[file]", "{a: 1}", "{1: 2}", "{[1]: 2}", "{? {a: 1} : 2}", "[[[[]]]]", "[" * 45 + "]" * 45),
    *("[" * 2000 + "]" * 2000, "{a: " * 2000 + "1" + "}" * 2000, f"{BOMB}]", "&x [*x]", "*nothing", "<<", "="),
    *(
        "x" * 300,
        "'" + "y" * 5000 + "'",
        '"\\0"',
        '"\\ud800"',
        '"\\e[2J\\x9b\\u202e"',
        '"\\r\\n"',
        "'a/b'",
        "../../etc/passwd",
    ),
    *(
        "/etc/passwd",
        "/dev/full",
        "'*'",
        "'**'",
        "'!'",
        "'{group}'",
        "'${data_seed}'",
        "'${nothing}'",
        "'${oc.env:HOME}'",
    ),
    *(
        "'700 steps'",
        "'1e300 steps'",
        "'5 %'",
        "'1e9 epochs'",
        "'99999999 days'",
        "'9999 TB'",
        "auto",
        "whole",
        "local",
    ),
    *(
        "gpt",
        "shakespeare",
        "language_model",
        "classifier",
        "lstm",
        "bert",
        "http://[::1",
        "'http://a b'",
        "postgresql://",
    ),
    *("http://", "http://a:99999", "'sqlite:///'", "file:///x", "mlruns", "'http://u:p@h/?token=x'"),
)
_MARK = "zzmark"


def _paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        found += _paths(value, (*path, key))
    return found


def _change(data: Any, draw: random.Random, raw: list[str]) -> None:
    """Change one entry: delete, rename, replace, wrap, copy to another place, add a key."""
    path = draw.choice(_paths(data) or [()])
    if not path:
        return
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    key = path[-1]
    raw.append(draw.choice(VALUES))
    mark = f"{_MARK}{len(raw) - 1}x"
    what = draw.randrange(7)
    if what == 0:
        del parent[key]
    elif what == 1 and isinstance(parent, dict):
        parent[mark] = parent.pop(key)
    elif what == 2 and isinstance(parent, dict):
        parent[mark] = mark
    elif what == 3:
        parent[key] = draw.choice([[parent[key]], {"a": parent[key]}, [parent[key]] * 50])
    elif what == 4:
        source = data
        for step in draw.choice(_paths(data)):
            source = source[step]
        parent[key] = yaml.safe_load(yaml.safe_dump(source))
    else:
        parent[key] = mark


def _scratch(text: str, draw: random.Random) -> str:
    """Change the text itself: cut, repeat a line, insert characters, indent."""
    lines = text.split("\n")
    at = draw.randrange(len(lines))
    what = draw.randrange(6)
    if what == 0:
        lines.insert(draw.randrange(len(lines)), lines[at])
    elif what == 1:
        del lines[at]
    elif what == 2:
        lines[at] = " " * draw.randrange(5) + lines[at].lstrip()
    elif what == 3:
        place = draw.randrange(len(lines[at]) + 1)
        odd = draw.choice("\t\x00\x1b\x85\ufeff\u2028\u202e\U0001f600:-?&*!|>'\"%@`{}[],#\\0é")
        lines[at] = lines[at][:place] + odd + lines[at][place:]
    elif what == 4:
        lines = lines[:at]
    else:
        lines[at] = lines[at] + draw.choice(VALUES)
    return "\n".join(lines)


def mutated(valid: str) -> st.SearchStrategy[str]:
    """Texts made from a valid YAML file by up to three changes of its data and up to one of its text."""

    def make(seed: int, changes: int, scratched: bool) -> str:
        draw = random.Random(seed)
        data, raw = yaml.safe_load(valid), []
        for _ in range(changes):
            _change(data, draw, raw)
        text = yaml.safe_dump(data, sort_keys=False, width=1000)
        for index, value in enumerate(raw):
            text = text.replace(f"{_MARK}{index}x", value)
        return _scratch(text, draw) if scratched else text

    return st.builds(make, st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 3).map(lambda n: n == 0))


def within_budget(call: Callable[[], Any]) -> str | None:
    """Call a door; return its error, None where it succeeded. Anything but `UserError` is a failure of the test."""
    error = None
    with within(SECONDS, MEGABYTES):
        try:
            call()
        except UserError as raised:
            error = str(raised)
    if error is not None:
        assert error.strip()
        assert "Traceback" not in error
        assert max(map(len, error.split("\n"))) < 5000
        assert len(error.split("\n")) < 500
    return error
