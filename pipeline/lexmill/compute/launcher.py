"""What a launcher is: it submits a stage elsewhere, looks how it stands, and cancels it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lexmill.base.errors import LexmillError
from lexmill.compute.job import JobFolder
from lexmill.compute.place import Place


@dataclass(frozen=True)
class Look:
    """What a launcher says of a job.

    Attributes:
        state: whether it waits for its turn, runs, or has ended for good.
        told: the cluster's own words for it.
        failure: how it ended where the stage itself left no word; None where nothing is known.
        cause: why a group of processes ended, where it is known better than by the stage's first one, which may have
            seen only that another was gone, or have been asked to end for it.
    """

    state: Literal["waiting", "running", "ended"]
    told: str
    failure: LexmillError | None = None
    cause: LexmillError | None = None


class Launcher(Protocol):
    """What starts a stage elsewhere. A job's name is the launcher's own."""

    name: str

    def submit(self, place: Place, command: Sequence[str], folder: JobFolder, environment: dict[str, str]) -> str:
        """Start the stage's command; gives the job's name there.

        Raises:
            UserError: the cluster refuses it.
            RetryableError: the cluster does not answer.
        """

    def look(self, job: str) -> Look:
        """How the job stands.

        Raises:
            RetryableError: the cluster does not answer.
        """

    def cancel(self, job: str) -> None:
        """End it in order; nothing where it has ended."""
