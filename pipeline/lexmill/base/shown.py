"""Foreign values and texts as a message or a terminal can show them: bounded, without control characters and secrets.

Values come from YAML files, JSON requests and options; texts also from file names, corpora and servers. A value that is
small in memory may be huge when printed (YAML aliases), an escape sequence could rewrite the terminal, and errors of
libraries quote whole addresses.
Cost: `value_text` stops at its bound, whatever the value's size.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from lexmill.base.cutting import cut

if TYPE_CHECKING:
    from rich.table import Table

MOST = 60
_HUGE = 10**40

# C0 without tab and newline, DEL and C1; what reorders the text after it (bidirectional embeddings, overrides and
# isolates); lone surrogates, which cannot be encoded.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

SECRET_NAME = re.compile(
    r"(^|[-_.])(sig|signature|token|secret|password|passwd|pwd|credential|api-?_?key|access-?_?key|auth(orization)?)$",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)[^\s/?#'\"<>]*@")
_PARAMETER = re.compile(r"(?<=[?&;])([\w.%+-]{1,100})=([^\s&;#'\"<>]+)")


def visible(text: str) -> str:
    """Return the text with control characters written as `\\x1b`, without secrets; newlines and tabs stay."""
    return without_secrets(_CONTROL.sub(lambda found: _escaped(found[0]), text))


def without_secrets(text: str) -> str:
    """Return the text without the logins of addresses in it, and with `***` for their secret parameters."""
    if "://" not in text:
        return text
    return _PARAMETER.sub(_masked, _LOGIN.sub("", text))


def _masked(found: re.Match[str]) -> str:
    return f"{found[1]}=***" if SECRET_NAME.search(found[1]) else found[0]


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def number_text(number: float) -> str:
    """Return a number with commas between thousands where it is long."""
    return f"{number:,}" if isinstance(number, int) and abs(number) >= 100_000 else str(number)


def print_line(text: object, file: TextIO | None = None) -> None:
    """Print a line with control characters made visible, on standard output by default, at once."""
    print(visible(str(text)), file=sys.stdout if file is None else file, flush=True)


def print_table(table: Table, wide: int = 120) -> None:
    """Print a rich table on standard output, its texts as they are (no markup), control characters made visible.

    Args:
        table: its cells and title are texts.
        wide: characters a line where standard output is no terminal.
    """
    from rich.console import Console

    for column in table.columns:
        column._cells = [visible(str(cell)) for cell in column._cells]
        column.header = visible(str(column.header))
    table.title = None if table.title is None else visible(str(table.title))
    width = None if sys.stdout.isatty() else wide
    Console(file=sys.stdout, width=width, markup=False, emoji=False, highlight=False).print(table)


def setting_text(value: Any) -> str:
    """Return a setting with a notation of its own (`90 minutes`) as stripped text, any other value as it is shown."""
    return value.strip() if isinstance(value, str) else value_text(value)


def value_text(value: Any, most: int = MOST) -> str:
    """Return a value as Python writes it, at most `most` characters."""
    text = ""
    for piece in _pieces(value, most):
        text += piece
        if len(text) > most:
            return cut(text, most)
    return text


def key_text(key: Any, most: int = MOST) -> str:
    """Return a key as it is shown in a path: a short text as it is, without quotes."""
    return key if isinstance(key, str) and len(key) <= most else value_text(key, most)


def _pieces(value: Any, most: int) -> Iterator[str]:
    """Yield parts of the text; each level yields before the next, so that the bound also limits the depth."""
    if isinstance(value, Mapping):
        yield "{"
        for index, (key, inner) in enumerate(value.items()):
            yield ", " if index else ""
            yield from _pieces(key, most)
            yield ": "
            yield from _pieces(inner, most)
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for index, inner in enumerate(value):
            yield ", " if index else ""
            yield from _pieces(inner, most)
        yield "]"
    elif isinstance(value, str | bytes):
        yield repr(value[: most + 1])
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _HUGE:
        yield f"a whole number of {int(value.bit_length() * 0.30103) + 1:,} digits"  # str() refuses over 4,300
    elif isinstance(value, bool | int | float | datetime.date) or value is None:
        yield str(value)
    else:
        yield repr(value)
