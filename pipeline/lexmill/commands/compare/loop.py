"""Run a comparison: tune each model's rate on a small grid, train it with further seeds, evaluate those at that rate.

Trainings run one after the other, for each uses all cores it may. After Ctrl-C, SIGTERM or kill -9 the same command
resumes the same training from its last checkpoint. A training that has ended is never repeated, also where another
comparison of the same budget and data asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexmill.base import storage, workspace
from lexmill.base.errors import UserErrors
from lexmill.base.progress import say
from lexmill.commands.compare import grid, results
from lexmill.commands.compare.subjects import Subject
from lexmill.commands.trainings.seeded import Trainings, Trial, Wanted

FOLDER = workspace.HOME / "comparisons"


@dataclass(frozen=True)
class Plan:
    """What is asked of every model.

    Attributes:
        factor: between the rates of the grid.
        seeds: of training, the first one tunes the rate.
        code: digests by model, part of a training's identity.
    """

    factor: float
    seeds: Sequence[int]
    code: Mapping[str, Any]


class Loop:
    """Runs the trainings of a comparison.

    Args:
        folder: of the comparison.
        root: the workspace, locked by the caller.
        names: of all models.
        plan: what is asked of each.
        after: called after each training.
    """

    def __init__(self, folder: Path, root: Path, names: Sequence[str], plan: Plan, after: Callable[[], None]) -> None:
        self._folder, self._plan = folder, plan
        self._trainings = Trainings(folder, root, names, after)

    def run(self, subject: Subject) -> dict[str, Any]:
        """Return the summary of a model (`results.summary`), after the trainings that it lacks.

        Raises:
            Stopped: at the user's request.
            RetryableError, LexmillError: as `why_failed`.
        """
        first = self._plan.seeds[0]
        tried: dict[int, Trial | None] = {}
        with self._trainings.execution():
            while (power := grid.next_power(results.losses(tried))) is not None:
                tuned = subject.with_rate(self._plan.factor**power)
                wanted = self._wanted(tuned, first)
                tried[power] = self._trainings.trained(wanted) if _in_bounds(tuned) else None
            found = grid.best(results.losses(tried))
            if found is None:
                return results.summary(tried, [])
            tuned = subject.with_rate(self._plan.factor**found)
            ended = [self._trainings.evaluated(self._wanted(tuned, seed)) for seed in self._plan.seeds]
            return results.summary(tried, ended)

    def calibrate(self, subject: Subject) -> float:
        """Return the tokens/s of a few training steps, measured once and kept.

        Raises:
            Stopped, RetryableError, LexmillError: as `run`.
            UserErrors: the training failed.
        """
        path = self._folder / "calibration.json"
        known = storage.read_json(path) if path.is_file() else {}
        wanted = self._wanted(subject, self._plan.seeds[0])
        if wanted.key not in known:
            say(f"{subject.preset}: measuring its speed")
            known[wanted.key] = self._trainings.speed(wanted)
            storage.write_json(path, known)
        return float(known[wanted.key])

    def _wanted(self, subject: Subject, seed: int) -> Wanted:
        key = storage.fingerprint([subject.preset, subject.entry, seed, self._plan.code[subject.name]])
        values = {"rate": subject.rate, "training_seed": seed}
        return Wanted(key, subject.preset, subject.name, subject.data(seed), values)


def _in_bounds(subject: Subject) -> bool:
    """Return whether the optimizer takes this rate."""
    try:
        subject.parsed()
    except UserErrors:
        return False
    return True
