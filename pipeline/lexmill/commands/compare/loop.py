"""Run a comparison: tune each model's rate on a small grid, train it with further seeds, evaluate each training.

Trainings run one after the other, for each uses all cores it may. After Ctrl-C, SIGTERM or kill -9 the same command
resumes the same training from its last checkpoint. A training that has ended is never repeated, also where another
comparison of the same budget and data asks for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lexmill.base import storage, workspace
from lexmill.base.errors import EXIT_DONE, UserErrors
from lexmill.base.progress import say
from lexmill.commands.compare import grid, results
from lexmill.commands.compare.results import Trial
from lexmill.commands.compare.subjects import Subject
from lexmill.commands.trainings.running import run_watched, why_failed
from lexmill.commands.trainings.scratch import Scratch
from lexmill.commands.trainings.trials import write
from lexmill.runner.display import Display
from lexmill.runner.session import stopping
from lexmill.runner.supervised import Outcome, Stop

FOLDER = workspace.HOME / "comparisons"


class Stopped(Exception):
    """The user asked for an end; `code` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


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
        self._folder, self._plan, self._after = folder, plan, after
        folder.mkdir(parents=True, exist_ok=True)
        self._scratch = Scratch(folder, root, names)
        self._display = Display()
        self._ended = results.read(folder)

    def run(self, subject: Subject) -> dict[str, Any]:
        """Return the summary of a model (`results.summary`), after the trainings that it lacks.

        Raises:
            Stopped: at the user's request.
            RetryableError, LexmillError: as `why_failed`.
        """
        first, *others = self._plan.seeds
        tried: dict[int, Trial | None] = {}
        with self._scratch.execution():
            while (power := grid.next_power(results.losses(tried))) is not None:
                tuned = subject.with_rate(self._plan.factor**power)
                tried[power] = self._trial(tuned, first) if _in_bounds(tuned) else None
            found = grid.best(results.losses(tried))
            best = None if found is None else tried[found]
            if found is None or best is None:
                return results.summary(tried, [])
            tuned = subject.with_rate(self._plan.factor**found)
            return results.summary(tried, [best, *(self._trial(tuned, seed) for seed in others)])

    def calibrate(self, subject: Subject) -> float:
        """Return the tokens/s of a few training steps, measured once and kept.

        Raises:
            Stopped, RetryableError, LexmillError: as `run`.
            UserErrors: the training failed.
        """
        path = self._folder / "calibration.json"
        known = storage.read_json(path) if path.is_file() else {}
        key = self._key(subject, self._plan.seeds[0])
        if key not in known:
            say(f"{subject.preset}: measuring its speed")
            with self._scratch.execution():
                outcome = self._stages(key, subject, self._plan.seeds[0], ("train",), force=True)
            if outcome.code != EXIT_DONE:
                raise UserErrors([f"{subject.preset}: {why_failed(outcome)}"])
            speed = self._scratch.speed(subject.name)
            assert speed is not None
            known[key] = speed
            storage.write_json(path, known)
            self._scratch.ended()
        return float(known[key])

    def _key(self, subject: Subject, seed: int) -> str:
        return storage.fingerprint([subject.preset, subject.entry, seed, self._plan.code[subject.name]])

    def _trial(self, subject: Subject, seed: int) -> Trial:
        key = self._key(subject, seed)
        if key not in self._ended:
            say(f"{subject.preset}: rate {subject.rate:g}, seed {seed}")
            self._ended[key] = self._train(key, subject, seed)
            self._after()
        return self._ended[key]

    def _train(self, key: str, subject: Subject, seed: int) -> Trial:
        begun, clock = int(time.time() * 1000), time.monotonic()
        outcome = self._stages(key, subject, seed, ("train", "evaluate"))
        done, name = outcome.code == EXIT_DONE, subject.name
        message = "" if done else why_failed(outcome)
        trial = Trial(
            number=len(self._ended) + 1,
            key=key,
            model=subject.preset,
            state="complete" if done else "failed",
            values={"rate": subject.rate, "training_seed": seed},
            valid_loss=self._scratch.value(name) if done else None,
            metrics=self._scratch.metrics("evaluate", name)["test"] if done else {},
            training=self._scratch.metrics("train", name) if done else {},
            tokens_per_second=self._scratch.speed(name) if done else None,
            message=message,
            started=begun,
            seconds=round(time.monotonic() - clock, 3),
        )
        write(self._folder, trial, self._scratch.points(name))
        self._scratch.ended()
        say(f"{subject.preset}: {message or f'valid loss {trial.valid_loss:.5g}'}")
        return trial

    def _stages(self, key: str, subject: Subject, seed: int, stages: Sequence[str], *, force: bool = False) -> Outcome:
        """Run stages of a model up to the first that fails; return the last outcome."""
        self._scratch.begin(key, subject.name, subject.data(seed))
        run = partial(self._scratch.run, force=force)
        stop = Stop()
        with stopping(stop, self._display):
            for stage in stages:
                outcome = run_watched(f"{stage}@{subject.name}", run, stop, self._display)
                if stop.code is not None:
                    raise Stopped(stop.code)
                if outcome.code != EXIT_DONE:
                    break
        return outcome


def _in_bounds(subject: Subject) -> bool:
    """Return whether the optimizer takes this rate."""
    try:
        subject.parsed()
    except UserErrors:
        return False
    return True
