"""The use of registered champions from the command line: one line in, one line out, empty lines kept.

Texts given as arguments, or the lines of standard input. When whoever reads the answers has enough (`| head -1`), the
command ends quietly, as done. The verbs themselves are the kinds' (`lexmill.kinds.<kind>.command`).
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from unicodedata import category

from lexmill.base.errors import UserError
from lexmill.base.quiet import quieten
from lexmill.decoding.predictor import Predictor
from lexmill.kinds.verbs import Precision


def show(lines: Iterable[str]) -> None:
    """Print a line an answer, as long as someone reads them."""
    with _while_read():
        for line in lines:
            print(harmless(line), flush=True)


def show_growing(begun: Iterable[str], pieces: Iterable[str]) -> None:
    """One text, piece by piece; the line is ended also where the user ends the text."""
    with _while_read():
        try:
            for piece in itertools.chain(begun, pieces):
                print(harmless(piece), end="", flush=True)
        finally:
            print(flush=True)


def harmless(text: str) -> str:
    """At a terminal no control character of a model's reaches it (it could move the cursor); elsewhere all stays."""
    if not sys.stdout.isatty():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if category(one) == "Cc" and one not in "\n\t" else one for one in text)


@contextmanager
def _while_read() -> Iterator[None]:
    """Go on for as long as someone reads what is printed."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python still writes when it ends


def texts(given: Sequence[str] | None) -> Iterable[str]:
    """The texts given as arguments, else the lines of standard input."""
    return given or read_lines(sys.stdin.buffer)


def open(kind: str, name: str | None, precision: Precision = "float32") -> Predictor:
    """The champion of a model, or of the only one of its kind."""
    quieten(offline=True)
    from lexmill import params
    from lexmill.compute.execution import load_execution
    from lexmill.registry.use import open_model

    return open_model(name, kind, params.load(), load_execution(), precision=precision)


def read_lines(stream: Iterable[bytes]) -> Iterator[str]:
    """The lines of a byte stream without their ends, split at newlines only.

    Raises:
        UserError: a line is not UTF-8; says which.
    """
    for number, raw in enumerate(stream, start=1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"not UTF-8 ({error.reason} at byte {error.start})", "standard input", number) from None
        yield text.removesuffix("\n").removesuffix("\r")
