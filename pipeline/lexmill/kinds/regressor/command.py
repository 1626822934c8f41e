"""`lexmill rate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lexmill.kinds.verbs import ModelName, Texts, Use

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def rate(texts: Texts = None, model: ModelName = None, as_json: AsJson = False) -> None:
        """Give texts a number with the champion of a regressor; where it learned levels, a tab and the level follow."""
        found = use.model("regressor", model).predict(list(use.texts(texts)))
        if as_json:
            use.show(map(json.dumps, found))
        else:
            use.show("\t".join(f"{value:g}" for value in one.values()) for one in found)
