"""`lexmill seeds MODEL...`: train a model of params.yaml with several seeds; one entry of means and spreads."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lexmill import params
from lexmill.base import layout, storage, workspace
from lexmill.base.errors import EXIT_DONE, UserError
from lexmill.base.progress import say
from lexmill.base.shown import print_line
from lexmill.base.strict import pick
from lexmill.base.workspace import run_lock
from lexmill.base.yaml_file import read_yaml
from lexmill.commands.run import preflight
from lexmill.commands.trainings.inputs import hashes, make
from lexmill.commands.trainings.seeded import Stopped, Trainings, Trial, Wanted
from lexmill.commands.trainings.sending import Sending
from lexmill.compute.execution import load_execution
from lexmill.report import seeds as shown
from lexmill.runner.graph import read

FOLDER = workspace.HOME / "seeds"


def seeds(models: Sequence[str], count: int) -> int:
    """Train and evaluate each model with `count` seeds, then write and print their entries; return the exit code.

    The first seed is `training_seed`, the others follow it.

    Raises:
        UserError, UserErrors: a model is unknown, params.yaml or the execution settings have errors.
        RetryableError: another run holds the workspace, or a training failed for a passing reason.
    """
    preflight()
    root, choices = Path.cwd(), params.load()
    names = list(dict.fromkeys(models))
    for name in names:
        pick(choices.models, name, "models")
    code = make(_needs(names, root))
    if code != EXIT_DONE:
        return code
    with run_lock(root=root):
        try:
            for name in names:
                _Seeds(name, count, choices, root).run()
        except Stopped as stop:
            say("it was stopped; the same command resumes it")
            return stop.code
    entries = shown.collect(choices, root)
    print_line(shown.markdown([one for one in entries if one.model in names]))
    return EXIT_DONE


def _needs(names: Sequence[str], root: Path) -> list[str]:
    """Return the stages that make what training and evaluation of these models read."""
    own = {f"train@{name}" for name in names}
    ends = [*own, *(f"evaluate@{name}" for name in names)]
    found = {stage.name: stage.needs for stage in read(root, targets=ends).stages}
    return sorted({need for end in ends for need in found[end]} - own)


class _Seeds:
    """The seeds of one model, its inputs made and the workspace locked."""

    def __init__(self, name: str, count: int, choices: params.Params, root: Path) -> None:
        self._name, self._choices, self._root = name, choices, root
        self._data: dict[str, Any] = read_yaml(root / "params.yaml")
        inputs = hashes(f"train@{name}", root) | hashes(f"evaluate@{name}", root)
        inputs.pop(layout.model(name).as_posix(), None)  # what is trained here is another model
        known = {
            "entry": self._data["models"][name],
            "data_seed": choices.data_seed,
            "evaluation": dataclasses.asdict(choices.evaluation),
            "inputs": inputs,
        }
        self._identity = storage.fingerprint(known)
        self._folder = root / FOLDER / f"{name}-{self._identity[:8]}"
        self._seeds = range(choices.training_seed, choices.training_seed + count)
        self._sending = Sending(load_execution(), root, "work")
        about = {"title": f"seeds of {name}", "identity": self._identity, "model": "", "params": {"model": name}}
        storage.write_json(self._folder / "sweep.json", {**about, "experiment": choices.experiment})

    def run(self) -> None:
        """Train what is missing and write the entry; raise `UserError` where every training failed."""
        trainings = Trainings(self._folder, self._root, [self._name], lambda: self._sending(self._folder))
        with trainings.execution():
            trials = [trainings.evaluated(self._wanted(seed)) for seed in self._seeds]
        done = [trial for trial in trials if trial.state == "complete"]
        if not done:
            raise UserError(f"no training of {self._name} succeeded; the last failed with: {trials[-1].message}")
        entry = {
            "corpus": self._choices.models[self._name].data.corpus,
            "of": storage.fingerprint(self._data["models"][self._name]),
            "failed": {str(trial.values["training_seed"]): trial.message for trial in trials if trial.message},
            "seeds": [trial.values["training_seed"] for trial in done],
            "test": summary([trial.metrics for trial in done]),
            "train": summary([trial.training for trial in done]),
        }
        storage.write_json(self._root / layout.metrics(shown.STAGE, self._name), entry)
        self._tell(done, entry["test"])
        self._sending(self._folder)
        self._sending.report()

    def _wanted(self, seed: int) -> Wanted:
        data = {**self._data, "training_seed": seed}
        key = storage.fingerprint([self._identity, seed])
        return Wanted(key, self._name, self._name, data, {"training_seed": seed})

    def _tell(self, done: Sequence[Trial], test: Mapping[str, Any]) -> None:
        """Write what the parent run in MLflow says."""
        (one,) = [one for one in shown.collect(self._choices, self._root) if one.model == self._name]
        metrics = {f"test/{name}": found["mean"] for name, found in test.items()}
        metrics |= {f"test/{name}_deviation": found["deviation"] for name, found in test.items()}
        numbers = {"time": int(1000 * time.time()), "step": len(done), "metrics": metrics}
        storage.write_json(self._folder / "summary.json", numbers)
        storage.write_text(self._folder / "note.md", shown.markdown([one]))


def summary(metrics: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return mean, sample standard deviation, least and largest value of each metric that is a number in all trainings.

    The deviation of one training is 0. Intervals are left out: they are of the choice of texts, not of luck.
    """
    found = {}
    for name in metrics[0]:
        values = [one.get(name) for one in metrics]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        if len(numbers) == len(values) and not name.endswith(("_low", "_high")):
            found[name] = {
                "mean": statistics.fmean(numbers),
                "deviation": statistics.stdev(numbers) if len(numbers) > 1 else 0.0,
                "least": min(numbers),
                "largest": max(numbers),
                "values": numbers,
            }
    return found
