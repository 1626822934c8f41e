"""`lexmill results`."""

from __future__ import annotations

import sys

from lexmill import params
from lexmill.base.errors import UserError
from lexmill.commands.run import show_results as show_table
from lexmill.report import results


def show_results(as_json: bool) -> None:
    """The table, or the JSON, on standard output.

    Raises:
        UserError: nothing was evaluated yet.
    """
    choices = params.load()
    rows = results.collect(choices)
    absent = results.missing(choices)
    if not rows:
        raise UserError("no model was evaluated yet; `lexmill run` does it")
    if as_json:
        sys.stdout.write(results.to_json(rows, choices.experiment))
    else:
        show_table(rows, choices.experiment)
    if absent:
        print(f"not evaluated yet: {', '.join(absent)}", file=sys.stderr)
