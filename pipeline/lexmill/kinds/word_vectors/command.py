"""`lexmill neighbours`, for the input embeddings of models of every kind."""

from __future__ import annotations

from typing import Annotated

import typer

from lexmill.kinds.verbs import ModelName, Use


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def neighbours(
        words: Annotated[list[str], typer.Argument(metavar="WORD [- WORD] [+ WORD]...", help="As king - man + woman.")],
        *,
        model: ModelName = None,
        count: Annotated[int, typer.Option(min=1, max=100_000, help="How many words.")] = 10,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    ) -> None:
        """Show the words nearest to a word, or to a sum of words, in the input embeddings of a model."""
        use.show(use.neighbours(words, model, count=count, as_json=as_json))
