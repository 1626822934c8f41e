"""`lexmill label`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lexmill.kinds.verbs import ModelName, Texts, Use, one_field

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, with the score of each label.")]


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def label(texts: Texts = None, model: ModelName = None, as_json: AsJson = False) -> None:
        """Give texts all of their labels with the champion of a multi-label classifier: a line a text, tabs between."""
        found = use.model("multilabel_classifier", model).predict(list(use.texts(texts)))
        if as_json:
            use.show(json.dumps(one, ensure_ascii=False) for one in found)
        else:
            use.show("\t".join(map(one_field, one["labels"])) for one in found)
