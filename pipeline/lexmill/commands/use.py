"""Use registered champions from the command line: one line in, one line out, empty lines kept.

Texts come as arguments or as lines of standard input. When the reader of the output closes it (`| head -1`), the
command ends quietly with success. The verbs are in `lexmill.kinds.<kind>.command`.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lexmill.base.errors import UserError
from lexmill.base.progress import say
from lexmill.base.quiet import quieten
from lexmill.base.shown import visible
from lexmill.decoding.predictor import Predictor
from lexmill.kinds.verbs import Precision

if TYPE_CHECKING:
    from lexmill.decoding.masked_tokens import Reader


def show(lines: Iterable[str]) -> None:
    """Print one line an answer, until the reader closes the output."""
    with _while_read():
        for line in lines:
            print(harmless(line), flush=True)


def show_growing(begun: Iterable[str], pieces: Iterable[str]) -> None:
    """Print one text piece by piece, and a newline at its end, also after Ctrl-C."""
    with _while_read():
        try:
            for piece in itertools.chain(begun, pieces):
                print(harmless(piece), end="", flush=True)
        finally:
            print(flush=True)


def harmless(text: str) -> str:
    """Make control characters visible if the output is a terminal, where they could move the cursor."""
    return visible(text) if sys.stdout.isatty() else text


@contextmanager
def _while_read() -> Iterator[None]:
    """End the block quietly when the reader closes the output."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python writes at its exit


def texts(given: Sequence[str] | None) -> Iterable[str]:
    """Return the texts given as arguments, else the lines of standard input."""
    return given or read_lines(sys.stdin.buffer)


def model(kind: str, name: str | None, precision: Precision = "float32") -> Predictor:
    """Load the champion of a model, or of the only one of its kind."""
    quieten(offline=True)
    from lexmill import params
    from lexmill.compute.cores import set_torch_threads
    from lexmill.compute.execution import load_execution, settings_file
    from lexmill.compute.load import hint
    from lexmill.registry.use import open_model

    choices, settings = params.load(), load_execution()
    opened = open_model(name, kind, choices, settings, precision=precision)
    if advice := hint(set_torch_threads(settings), settings_file()):
        say(advice)
    return opened


def masked_reader(kind: str, name: str | None) -> Reader:
    """Return what predicts masked tokens: the only model of a kind, or the one named, of any kind that does."""
    from lexmill import kinds, params

    named = params.load().models.get(name or "")
    if named is not None and kinds.find(named.kind).predicts_masked_tokens:
        kind = named.kind
    reader: Reader = kinds.find(kind).module("masked").reader(model(kind, name))
    return reader


def sentence_scorer(model: Predictor) -> Callable[[Sequence[str]], Sequence[float]]:
    """Return what gives texts their log-probabilities by a model, in nats."""
    from lexmill import kinds

    scores = kinds.find(model.config["kind"]).module("sentences")

    def score(found: Sequence[str]) -> Sequence[float]:
        values: Sequence[float] = scores.log_probabilities(model, found)
        return values

    return score


def neighbours(words: Sequence[str], name: str | None, *, count: int, as_json: bool) -> list[str]:
    """Return a line for each of the words nearest to a sum of words in a model of any kind."""
    from lexmill.commands.neighbours import neighbours as command

    return command(words, name, count=count, as_json=as_json)


def read_lines(stream: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a byte stream without their ends, split at newlines only.

    Raises:
        UserError: a line is not UTF-8; names it.
    """
    for number, raw in enumerate(stream, start=1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"not UTF-8 ({error.reason} at byte {error.start})", "standard input", number) from None
        yield text.removesuffix("\n").removesuffix("\r")
