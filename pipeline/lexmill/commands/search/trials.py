"""The results of trials on disk, for display and for MLflow, independent of Optuna's study.

.lexmill/searches/<search>/sweep.json         what is searched
.lexmill/searches/<search>/trials/0007.json   one ended trial
.lexmill/searches/<search>/trials/0007.jsonl  its points, as its training wrote them
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lexmill.base import storage
from lexmill.commands.search.space import Value

TRIALS = "trials"
State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class Ended:
    """A trial that is over.

    Attributes:
        number: from 1.
        state: `pruned`: ended early, as hopeless.
        values: of the searched keys.
        valid_loss: that it reached; of a pruned one at its last validation; None if it failed.
        looks: the number of judged validations.
        message: why it failed.
        started, seconds: milliseconds since 1970, and its run time since then.
    """

    number: int
    state: State
    values: dict[str, Value]
    valid_loss: float | None
    looks: int
    message: str
    started: int
    seconds: float


def write(folder: Path, ended: Ended, points: Path) -> None:
    """Store a trial and its points, if there are any."""
    path = folder / TRIALS / f"{ended.number:04d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if points.is_file():
        shutil.copyfile(points, path.with_suffix(".jsonl"))
    storage.write_json(path, asdict(ended))


def read(folder: Path) -> list[Ended]:
    """Return the ended trials, by number."""
    return [Ended(**storage.read_json(path)) for path in sorted((folder / TRIALS).glob("[0-9]*.json"))]


def ranked(trials: list[Ended]) -> list[Ended]:
    """Sort trials: complete ones by their loss, then pruned ones, then failed ones."""
    order = {"complete": 0, "pruned": 1, "failed": 2}
    return sorted(trials, key=lambda one: (order[one.state], one.valid_loss or 0.0, one.number))


def best(trials: list[Ended]) -> Ended | None:
    """Return the complete trial with the lowest loss; of equal ones the first."""
    return next((one for one in ranked(trials) if one.state == "complete"), None)
