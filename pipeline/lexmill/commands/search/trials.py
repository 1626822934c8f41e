"""The results of a search's trials, independent of Optuna's study; on disk as `commands.trainings.trials` has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lexmill.commands.search.space import Value
from lexmill.commands.trainings import trials

State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True, kw_only=True)
class Ended(trials.Ended):
    """A trial that is over; a pruned one's loss is that of its last validation.

    Attributes:
        state: `pruned`: ended early, as hopeless.
        values: of the searched keys.
        looks: the number of judged validations.
    """

    state: State
    values: dict[str, Value]
    looks: int


def read(folder: Path) -> list[Ended]:
    """Return the ended trials, by number."""
    return trials.read(folder, Ended)


def ranked(ended: list[Ended]) -> list[Ended]:
    """Sort trials: complete ones by their loss, then pruned ones, then failed ones."""
    order = {"complete": 0, "pruned": 1, "failed": 2}
    return sorted(ended, key=lambda one: (order[one.state], one.valid_loss or 0.0, one.number))


def best(ended: list[Ended]) -> Ended | None:
    """Return the complete trial with the lowest loss; of equal ones the first."""
    return next((one for one in ranked(ended) if one.state == "complete"), None)
