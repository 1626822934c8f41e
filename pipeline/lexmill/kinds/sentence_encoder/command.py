"""`lexmill similar`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lexmill.kinds.verbs import ModelName, Texts, Use, one_field

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="How many texts.")]


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def similar(
        query: Annotated[str, typer.Argument(metavar="QUERY", help="The text to compare with.")],
        texts: Texts = None,
        model: ModelName = None,
        count: Count = 10,
        as_json: AsJson = False,
    ) -> None:
        """Show the texts most like one, the most similar first: the cosine of a sentence encoder, a tab, the text."""
        from lexmill.kinds.sentence_encoder.predict import Predictor

        given = list(dict.fromkeys(use.texts(texts)))
        opened = use.model("sentence_encoder", model)
        assert isinstance(opened, Predictor)
        wanted, *others = opened.vectors([query, *given])
        cosines = [float(one @ wanted) for one in others]
        best = sorted(zip(cosines, given, strict=True), key=lambda one: -one[0])[:count]
        if as_json:
            use.show(json.dumps({"text": text, "cosine": cosine}, ensure_ascii=False) for cosine, text in best)
        else:
            use.show(f"{cosine:.4f}\t{one_field(text)}" for cosine, text in best)
