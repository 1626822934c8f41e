"""What a kind's verb on the command line uses: a model's champion, the texts, ways to show answers.

The command line implements it (`lexmill.commands.use`), so no kind needs the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import typer

from lexmill.decoding.predictor import Predictor

if TYPE_CHECKING:
    from lexmill.decoding.masked_tokens import Reader  # which imports numpy

Precision = Literal["float32", "bfloat16"]
ModelName = Annotated[str | None, typer.Option("--model", "-m", help="Which model, where there are several.")]
Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Default: the lines of stdin.")]


class Use(Protocol):
    """Access to models and to the terminal."""

    def model(self, kind: str, name: str | None, precision: Precision = "float32") -> Predictor:
        """Return the champion of a model, or of the only one of its kind; raises `UserError` if there is none."""

    def masked_reader(self, kind: str, name: str | None) -> Reader:
        """Return what predicts masked tokens: the only model of a kind, or the one named, of any kind that does."""

    def sentence_scorer(self, model: Predictor) -> Callable[[Sequence[str]], Sequence[float]]:
        """Return what gives texts their log-probabilities by a model, in nats."""

    def neighbours(self, words: Sequence[str], name: str | None, *, count: int, as_json: bool) -> Iterable[str]:
        """Return a line for each of the words nearest to a sum of words in a model of any kind."""

    def texts(self, given: Sequence[str] | None) -> Iterable[str]:
        """Return the texts given as arguments, else the lines of standard input."""

    def show(self, lines: Iterable[str]) -> None:
        """Print one line per answer, until the reader closes the pipe."""

    def show_growing(self, begun: Iterable[str], pieces: Iterator[str]) -> None:
        """Print one text piece by piece."""


def one_line(text: str) -> str:
    """Return the text with `\\n` for a line break and `\\\\` for a backslash, so that nothing is lost."""
    return text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")


def one_field(text: str) -> str:
    """Return the text as `one_line` does, with `\\t` for a tab, so that it is one column of a line."""
    return one_line(text).replace("\t", "\\t")
