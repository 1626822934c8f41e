"""The far end: a piece that has come to a worker of a cluster."""

from __future__ import annotations

from importlib import import_module

from lexmill.base.errors import UserError
from lexmill.compute.workers.executor import Plain, failed, outcome_of
from lexmill.compute.workers.identity import check


class PieceFailed(Exception):
    """The work on a piece ended badly; carries the outcome, so that it is seen as failed on the way too."""

    def __init__(self, outcome: Plain) -> None:
        super().__init__(outcome)
        self.outcome = outcome

    def __str__(self) -> str:
        return "\n".join(self.outcome["told"])


def work_on(work: str, common: Plain, wanted: Plain, item: Plain) -> Plain:
    """Check that this worker is fit, and do the work.

    Args:
        work: the function, `module:name`.
        common: what is common to all pieces.
        wanted: what every worker must agree with (`lexmill.compute.workers.identity`).
        item: what is this piece's own.

    Returns:
        The outcome (`lexmill.compute.workers.executor.outcome_of`).

    Raises:
        PieceFailed: with the outcome; a worker that is not fit is `fatal`, since it would spoil piece after piece.
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
