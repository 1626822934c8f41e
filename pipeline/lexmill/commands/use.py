"""`lexmill generate`, `classify`, `translate`: one line in, one line out, empty lines kept.

Texts given as arguments, or the lines of standard input. A continuation that holds line breaks is printed as it is for
an argument, and with `\\n` for them where lines must answer lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lexmill import execution, params
from lexmill.errors import UserError
from lexmill.quiet import quieten


def generate(prompts: Sequence[str] | None, name: str | None, settings: Mapping[str, Any]) -> None:
    """Print each prompt with its continuation."""
    from lexmill.registry import use

    texts = list(_texts(prompts))
    choices, machine = _settings()
    found = use.generate(texts, name, choices, machine, settings=settings)
    for prompt, text in zip(texts, found, strict=True):
        print(prompt + text if prompts else one_line(prompt + text), flush=True)


def classify(texts: Sequence[str] | None, name: str | None) -> None:
    """Print the label of each text, a tab, its probability."""
    from lexmill.registry import use

    for found in use.classify(list(_texts(texts)), name, *_settings()):
        print(f"{found['label']}\t{found['score']:.4f}", flush=True)


def translate(sentences: Sequence[str] | None, name: str | None) -> None:
    """Print the translation of each sentence."""
    from lexmill.registry import use

    for text in use.translate(_texts(sentences), name, *_settings()):
        print(text, flush=True)


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
