"""The worker's side: the work on a piece sent to a cluster."""

from __future__ import annotations

from importlib import import_module

from lexmill.base.errors import UserError
from lexmill.compute.workers.executor import Plain, failed, outcome_of
from lexmill.compute.workers.identity import check


class PieceFailed(Exception):
    """The work on a piece failed; carries the outcome, and marks the task as failed."""

    def __init__(self, outcome: Plain) -> None:
        super().__init__(outcome)
        self.outcome = outcome

    def __str__(self) -> str:
        return "\n".join(self.outcome["messages"])


def work_on(work: str, common: Plain, wanted: Plain, item: Plain) -> Plain:
    """Check this worker and do the work.

    Args:
        work: the function, `module:name`.
        common: what is common to all pieces.
        wanted: what every worker must match (`lexmill.compute.workers.identity`).
        item: the piece.

    Returns:
        The outcome (`lexmill.compute.workers.executor.outcome_of`).

    Raises:
        PieceFailed: with the outcome; an unfit worker is `fatal`, since it would fail piece after piece.
    """
    try:
        check(wanted)
    except UserError as error:
        raise PieceFailed({**failed(error), "fatal": True}) from None
    module, _, name = work.partition(":")
    outcome = outcome_of(getattr(import_module(module), name), {**common, **item})
    if "code" in outcome:
        raise PieceFailed(outcome)
    return outcome
