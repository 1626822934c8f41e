"""`lexmill tag`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lexmill.kinds.verbs import ModelName, Texts, Use

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line: words, tags, entities.")]
Split = Annotated[
    bool, typer.Option("--split-punctuation", help="Cut punctuation off words; default: words are as spaces have them.")
]


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def tag(
        texts: Texts = None, model: ModelName = None, split_punctuation: Split = False, as_json: AsJson = False
    ) -> None:
        """Tag each word with the champion of a tagger: a word, a tab, its tag; a blank line after each text."""
        given = list(use.texts(texts))
        found = use.model("tagger", model).predict(given, {"split_punctuation": split_punctuation})
        if as_json:
            use.show(json.dumps(one, ensure_ascii=False) for one in found)
        else:
            pairs = (zip(one["words"], one["tags"], strict=True) for one in found)
            use.show("".join(f"{word}\t{tag}\n" for word, tag in one) for one in pairs)
