"""`lexmill classify`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lexmill.kinds.verbs import ModelName, Texts, Use, one_field

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line, with the score of each label.")]


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def classify(texts: Texts = None, model: ModelName = None, as_json: AsJson = False) -> None:
        """Label texts with the champion of a classifier: the label, a tab, its probability.

        In a label, a tab, a line break and a backslash are written `\\t`, `\\n`, `\\r` and `\\\\`.
        """
        given = list(use.texts(texts))
        found = use.open("classifier", model).predict(given)
        if as_json:
            use.show(json.dumps(one, ensure_ascii=False) for one in found)
        else:
            use.show(f"{one_field(one['label'])}\t{one['score']:.4f}" for one in found)
