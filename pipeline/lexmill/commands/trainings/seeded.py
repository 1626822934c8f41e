"""Train models, each with a seed, one after the other, and evaluate those asked for; what has ended is never repeated.

A training uses all cores it may. After Ctrl-C, SIGTERM or kill -9 the same command resumes the same training from its
last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from lexmill.base.errors import EXIT_DONE, UserErrors
from lexmill.base.progress import say
from lexmill.commands.trainings import trials
from lexmill.commands.trainings.running import run_watched, why_failed
from lexmill.commands.trainings.scratch import Scratch
from lexmill.runner.display import Display
from lexmill.runner.session import stopping
from lexmill.runner.supervised import Outcome, Stop


class Stopped(Exception):
    """The user asked for an end; `code` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Trial(trials.Ended):
    """A training that is over.

    Attributes:
        key: identifies what was trained: entry, seed, code.
        model: its name.
        state: `failed`: it diverged, or memory ran out.
        values: its seed, and its peak rate where that was tuned.
        metrics: of the test split, as `evaluate` gives them; empty before.
        training: the metrics of `train`.
    """

    key: str
    model: str
    state: Literal["complete", "failed"]
    values: dict[str, Any]
    metrics: dict[str, Any]
    training: dict[str, Any]


def read(folder: Path) -> dict[str, Trial]:
    """Return the trials by key, in the order of their numbers."""
    return {trial.key: trial for trial in trials.read(folder, Trial)}


@dataclass(frozen=True)
class Wanted:
    """A training that is asked for.

    Attributes:
        key: identifies it.
        title: the model's name for people.
        name: its name in params.yaml.
        params: params.yaml with its seed, as plain data.
        values: of the trial.
    """

    key: str
    title: str
    name: str
    params: Mapping[str, Any]
    values: Mapping[str, Any]


class Trainings:
    """Trainings in a scratch workspace.

    Args:
        folder: theirs.
        root: the workspace, locked by the caller.
        names: of all models, in params.yaml.
        after: called after each training.
    """

    def __init__(self, folder: Path, root: Path, names: Sequence[str], after: Callable[[], None]) -> None:
        self._folder, self._after = folder, after
        folder.mkdir(parents=True, exist_ok=True)
        self._scratch = Scratch(folder, root, names)
        self._display = Display()
        self._ended = read(folder)
        self._present = ""  # key of the training whose outputs are in the scratch workspace

    def execution(self) -> AbstractContextManager[None]:
        """Let stages take the settings of the scratch workspace."""
        return self._scratch.execution()

    def trained(self, wanted: Wanted) -> Trial:
        """Return a training's trial, trained where it is not yet.

        Raises:
            Stopped: at the user's request.
            RetryableError, LexmillError: as `why_failed`.
        """
        if wanted.key not in self._ended:
            values = ", ".join(f"{name.removeprefix('training_')} {value:g}" for name, value in wanted.values.items())
            say(f"{wanted.title}: {values}")
            self._ended[wanted.key] = self._train(wanted)
            self._after()
        return self._ended[wanted.key]

    def evaluated(self, wanted: Wanted) -> Trial:
        """Return `trained` with its metrics, unless it failed; raise likewise.

        DVC restores the outputs of a training that others followed.
        """
        trial = self.trained(wanted)
        if trial.state == "complete" and not trial.metrics:
            stages = ("evaluate",) if self._present == wanted.key else ("train", "evaluate")
            outcome = self._stages(wanted, stages)
            if outcome.code == EXIT_DONE:
                trial = replace(trial, metrics=self._scratch.metrics("evaluate", wanted.name)["test"])
            else:
                trial = replace(trial, state="failed", message=why_failed(outcome))
                say(f"{wanted.title}: {trial.message}")
            self._ended[wanted.key] = trial
            trials.write(self._folder, trial)
            self._scratch.ended()
            self._after()
        return trial

    def speed(self, wanted: Wanted) -> float:
        """Return the tokens/s of a training that is run for its speed alone; raise like `trained`.

        Raises:
            UserErrors: the training failed.
        """
        self._present = ""
        with self.execution():
            outcome = self._stages(wanted, ("train",), force=True)
        if outcome.code != EXIT_DONE:
            raise UserErrors([f"{wanted.title}: {why_failed(outcome)}"])
        speed = self._scratch.speed(wanted.name)
        assert speed is not None
        self._scratch.ended()
        return speed

    def _train(self, wanted: Wanted) -> Trial:
        begun, clock = int(time.time() * 1000), time.monotonic()
        outcome = self._stages(wanted, ("train",))
        done, name = outcome.code == EXIT_DONE, wanted.name
        self._present = wanted.key if done else ""
        message = "" if done else why_failed(outcome)
        trial = Trial(
            number=len(self._ended) + 1,
            key=wanted.key,
            model=wanted.title,
            state="complete" if done else "failed",
            values=dict(wanted.values),
            valid_loss=self._scratch.value(name) if done else None,
            metrics={},
            training=self._scratch.metrics("train", name) if done else {},
            message=message,
            started=begun,
            seconds=round(time.monotonic() - clock, 3),
        )
        trials.write(self._folder, trial, self._scratch.points(name))
        self._scratch.ended()
        say(f"{wanted.title}: {message or f'valid loss {trial.valid_loss:.5g}'}")
        return trial

    def _stages(self, wanted: Wanted, stages: Sequence[str], *, force: bool = False) -> Outcome:
        """Run stages of a model up to the first that fails; return the last outcome."""
        self._scratch.begin(wanted.key, wanted.name, wanted.params)
        run = partial(self._scratch.run, force=force)
        stop = Stop()
        with stopping(stop, self._display):
            for stage in stages:
                outcome = run_watched(f"{stage}@{wanted.name}", run, stop, self._display)
                if stop.code is not None:
                    raise Stopped(stop.code)
                if outcome.code != EXIT_DONE:
                    break
        return outcome
