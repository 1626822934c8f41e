"""`lexmill generate`, `classify`, `translate`: one line in, one line out, empty lines kept.

Texts given as arguments, or the lines of standard input. A continuation that holds line breaks is printed as it is for
an argument, and with `\\n` for them where lines must answer lines. When whoever reads the answers has enough
(`| head -1`), the command ends quietly, as done.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unicodedata import category

from lexmill import params
from lexmill.base.errors import UserError
from lexmill.base.quiet import quieten
from lexmill.compute import execution

if TYPE_CHECKING:
    from lexmill.registry.loader import Precision


def generate(
    prompts: Sequence[str] | None,
    name: str | None,
    settings: Mapping[str, Any],
    stream: bool | None = None,
    precision: Precision = "float32",
) -> None:
    """Print each prompt with its continuation.

    Args:
        stream: show the text as it is written; None: for one prompt given as an argument, at a terminal.

    Raises:
        UserError: a stream is wanted of several prompts.
    """
    from lexmill.registry import use

    texts = list(_texts(prompts))
    if stream and len(texts) != 1:
        raise UserError(f"--stream shows one text as it is written, but there are {len(texts)} prompts; give one")
    choices, machine = _settings()
    if stream or (stream is None and prompts and len(texts) == 1 and sys.stdout.isatty()):
        pieces = use.stream(texts[0], name, choices, machine, settings=settings, precision=precision)
        _show_growing([texts[0]] if prompts else [one_line(texts[0])], pieces if prompts else map(one_line, pieces))
        return
    found = use.generate(texts, name, choices, machine, settings=settings, precision=precision)
    whole = (prompt + text for prompt, text in zip(texts, found, strict=True))
    _show(whole if prompts else map(one_line, whole))


def classify(texts: Sequence[str] | None, name: str | None) -> None:
    """Print the label of each text, a tab, its probability."""
    from lexmill.registry import use

    _show(f"{found['label']}\t{found['score']:.4f}" for found in use.classify(list(_texts(texts)), name, *_settings()))


def translate(sentences: Sequence[str] | None, name: str | None) -> None:
    """Print the translation of each sentence."""
    from lexmill.registry import use

    _show(use.translate(_texts(sentences), name, *_settings()))


def _show(lines: Iterable[str]) -> None:
    with _while_read():
        for line in lines:
            print(harmless(line), flush=True)


def _show_growing(begun: Iterable[str], pieces: Iterable[str]) -> None:
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


def _settings() -> tuple[params.Params, execution.Execution]:
    quieten(offline=True)
    return params.load(), execution.load_execution()


def _texts(given: Sequence[str] | None) -> Iterable[str]:
    return given or read_lines(sys.stdin.buffer)


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


def one_line(text: str) -> str:
    """The text with `\\n` for a line break, and `\\\\` for a backslash so that nothing is lost."""
    return text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
