"""`lexmill fill`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.kinds.verbs import ModelName, Texts, Use, one_field

AsJson = Annotated[bool, typer.Option("--json", help="One JSON list a text.")]


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def fill(
        texts: Texts = None,
        *,
        model: ModelName = None,
        top: Annotated[int, typer.Option(min=1, max=1000, help="How many tokens for each mask.")] = 5,
        as_json: AsJson = False,
    ) -> None:
        """Fill in each [MASK] of texts with the champion of an encoder: probability, token, the text; likeliest first.

        With --model also that of a language model that has learned masked tokens (recipe.method: hybrid).
        The columns are separated by tabs; where a text has several masks, each is filled in alone.
        """
        from lexmill.decoding import fill as filling

        given = list(use.texts(texts))
        for text in given:
            if filling.MASK not in text:
                raise UserError(f'there is no [MASK] in {value_text(text, 80)}; write one: "the [MASK] of Denmark"')
        found = filling.fill(use.masked_reader("encoder", model), given, top=top)
        if as_json:
            use.show(json.dumps(one, ensure_ascii=False) for one in found)
            return
        use.show(
            f"{one['probability']:.4f}\t{one_field(one['token'])}\t{one_field(one['text'])}"
            for answer in found
            for one in answer
        )
