"""`lexmill bucket`."""

from __future__ import annotations

import typer

from lexmill.kinds.verbs import ModelName, Texts, Use


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def bucket(texts: Texts = None, model: ModelName = None) -> None:
        """Say whether texts are short or long."""
        use.show(use.model("length_bucket", model).predict(list(use.texts(texts))))
