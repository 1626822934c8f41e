"""`lexmill classify`."""

from __future__ import annotations

import typer

from lexmill.kinds.verbs import ModelName, Texts, Use


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def classify(texts: Texts = None, model: ModelName = None) -> None:
        """Label texts with the champion of a classifier: the label, a tab, its probability."""
        given = list(use.texts(texts))
        found = use.open("classifier", model).predict(given)
        use.show(f"{one['label']}\t{one['score']:.4f}" for one in found)
