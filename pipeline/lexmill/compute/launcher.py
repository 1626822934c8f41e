"""The protocol of launchers: submit a stage elsewhere, poll it, cancel it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lexmill.base.errors import LexmillError
from lexmill.compute.job import JobFolder
from lexmill.compute.place import Place


@dataclass(frozen=True)
class Look:
    """A launcher's report on a job.

    Attributes:
        state: whether it waits for its turn, runs, or has ended for good.
        detail: the cluster's own words for it.
        failure: how it ended where the stage left no status; None where unknown.
        cause: why a group of processes ended, if known better than from the stage's first process, which may only have
            lost another one.
    """

    state: Literal["waiting", "running", "ended"]
    detail: str
    failure: LexmillError | None = None
    cause: LexmillError | None = None


class Launcher(Protocol):
    """Starts a stage elsewhere; the launcher defines the job's name."""

    name: str

    def submit(self, place: Place, command: Sequence[str], folder: JobFolder, environment: dict[str, str]) -> str:
        """Start the stage's command; return the job's name.

        Raises:
            UserError: the cluster refuses it.
            RetryableError: the cluster does not answer.
        """

    def look(self, job: str) -> Look:
        """Return the job's state; raise `RetryableError` where the cluster does not answer."""

    def cancel(self, job: str) -> None:
        """End it in order; do nothing where it has ended."""
