"""The page from its parts."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from lexmill import results
from lexmill.params import Params


def render(choices: Params, root: Path) -> str:
    """The whole page as HTML; the same files give the same text."""
    environment = Environment(loader=PackageLoader("lexmill.report", ""), autoescape=True, undefined=StrictUndefined)
    rows = results.collect(choices, root)
    return environment.get_template("page.html.j2").render(
        experiment=choices.experiment, rows=[results.cells(row) for row in rows]
    )
