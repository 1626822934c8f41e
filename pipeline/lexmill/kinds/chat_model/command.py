"""`lexmill chat`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from lexmill.decoding.settings import Sampling, built
from lexmill.kinds.verbs import ModelName, Precision, Texts, Use, one_line


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def chat(
        messages: Texts = None,
        *,
        model: ModelName = None,
        system: Annotated[str | None, typer.Option(help="A message of the system before all others.")] = None,
        max_tokens: Annotated[int | None, typer.Option(help="Longest answer, in tokens.")] = None,
        temperature: Annotated[float | None, typer.Option(help="0: always the likeliest token.")] = None,
        top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens; 0: all.")] = None,
        top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest tokens that hold this mass.")] = None,
        seed: Annotated[int | None, typer.Option(help="The same seed gives the same answers.")] = None,
        precision: Annotated[Precision, typer.Option(help="bfloat16: faster, if the processor has it.")] = "float32",
    ) -> None:
        """Talk to the champion of a chat model: each message, or line of stdin, continues one conversation."""
        given = {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
        }
        settings = {key: value for key, value in given.items() if value is not None}
        built(Sampling, settings)  # before the model is loaded
        predictor: Any = use.model("chat_model", model, precision)
        said = [{"role": "system", "content": system}] if system else []
        typed = not messages and sys.stdin.isatty()
        lines = iter(use.texts(messages))
        while (line := _next(lines, typed)) is not None:
            if not line.strip():
                continue
            said.append({"role": "user", "content": line})
            answer: list[str] = []
            pieces = _kept(predictor.reply(said, settings), answer)
            use.show_growing([], pieces if typed or messages else map(one_line, pieces))
            said.append({"role": "assistant", "content": "".join(answer)})


def _kept(pieces: Iterator[str], kept: list[str]) -> Iterator[str]:
    """Pass pieces on, and keep them."""
    for piece in pieces:
        kept.append(piece)
        yield piece


def _next(lines: Iterator[str], typed: bool) -> str | None:
    """Return the next message, after a prompt at a terminal; None at the end."""
    if typed:
        print("> ", end="", file=sys.stderr, flush=True)
    return next(lines, None)
