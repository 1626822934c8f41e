"""`lexmill translate`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any

import typer

from lexmill.decoding.predictor import Predictor
from lexmill.kinds.verbs import ModelName, Texts, Use

BeamSize = Annotated[
    int | None, typer.Option("--beam-size", min=1, max=64, help="Hypotheses kept; 1 is greedy. Default: the model's.")
]
_LINES = 64  # translated at once: output waits for so many lines or for the end of the input


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def translate(sentences: Texts = None, model: ModelName = None, beam_size: BeamSize = None) -> None:
        """Translate sentences with the champion of a translator."""
        params = {} if beam_size is None else {"beam_size": beam_size}
        use.show(translated(use.open("translator", model), use.texts(sentences), params))


def translated(
    model: Predictor, lines: Iterable[str], params: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[str]:
    """Yield one translation per line, in order; lines are read as needed, empty ones stay empty."""
    waiting = iter(lines)
    while batch := list(itertools.islice(waiting, _LINES)):
        # A line break inside a translation would shift every later line.
        yield from (" ".join(text.split("\n")) for text in model.predict(batch, dict(params)))
