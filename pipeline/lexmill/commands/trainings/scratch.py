"""The scratch workspace in which a search or a comparison trains, with its own params.yaml and links to its inputs.

    <folder>/workspace/     params.yaml, dvc.yaml, code.json, a small .dvc/ of its own
        artifacts/<kind>/<name>, conf, pipeline   links to the real ones
        artifacts/models/<model>, artifacts/predictions/<model>, metrics/, reports/   outputs of its own
    <folder>/checkpoints/   of the running trial; removed when it ends

The user's params.yaml, models and dvc.lock are never touched. DVC's cache is shared, so that `dvc repro` restores a
trial's outputs when its values are adopted.
Cost: some links; DVC's start, about 1.4 s a trial.
"""

from __future__ import annotations

import csv
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lexmill.base import layout, storage, workspace
from lexmill.base.errors import UserError
from lexmill.base.yaml_file import read_yaml
from lexmill.compute.execution import settings_file
from lexmill.runner.supervised import Listener, Outcome, Stop, run_stage
from lexmill.tracking.points import Tail, file_of

_LINKED = ("conf", "pipeline")
_COPIED = ("dvc.yaml", ".dvcignore", str(layout.CODE))


class Scratch:
    """Runs stages of models, one after the other.

    Args:
        folder: of the search or comparison.
        root: the real workspace.
        models: the names of the models that are trained here.
    """

    def __init__(self, folder: Path, root: Path, models: Collection[str]) -> None:
        self.root, self.place = root, folder / "workspace"
        self._own = {path for name in models for path in (layout.model(name), layout.predictions(name))}
        self.settings = folder / "execution.yaml"
        self._checkpoints = folder / "checkpoints"
        self._mark = folder / "workspace-trial"
        self._made()

    def points(self, model: str) -> Path:
        """Return the file of the points of a model's training."""
        return file_of("train", model, self.place)

    @contextmanager
    def execution(self) -> Iterator[None]:
        """Let stages take the settings of this workspace."""
        before = os.environ.get("LEXMILL_EXECUTION")
        os.environ["LEXMILL_EXECUTION"] = str(self.settings)
        try:
            yield
        finally:
            os.environ.pop("LEXMILL_EXECUTION")
            if before is not None:
                os.environ["LEXMILL_EXECUTION"] = before

    def _made(self) -> None:
        """Make the folder, or bring its links up to date."""
        self.place.mkdir(parents=True, exist_ok=True)
        for name in _LINKED:
            _link(self.place / name, self.root / name)
        for name in _COPIED:
            if (self.root / name).is_file():
                storage.write_text(self.place / name, (self.root / name).read_text(encoding="utf-8"))
        for path in sorted((self.root / layout.ARTIFACTS).glob("*/*")):
            relative = path.relative_to(self.root)
            if relative not in self._own:
                _link(self.place / relative, path)
        storage.write_text(
            self.place / ".dvc" / "config",
            f"[core]\n    no_scm = true\n    analytics = false\n[cache]\n    dir = {_cache_of(self.root)}\n",
        )
        settings = read_yaml(settings_file(self.root)) or {}
        # The points go to MLflow when the trial has ended, as a run of their own.
        settings |= {"checkpoint_root": str(self._checkpoints), "publish": False}
        storage.write_text(self.settings, yaml.safe_dump(settings))

    def begin(self, trial: str, model: str, params: Mapping[str, Any]) -> None:
        """Prepare a trial: clear the state of the last one, unless this is the same trial, interrupted."""
        if not self._mark.is_file() or self._mark.read_text(encoding="utf-8") != trial:
            self.points(model).unlink(missing_ok=True)
            shutil.rmtree(self._checkpoints, ignore_errors=True)
            storage.write_text(self._mark, trial)
        storage.write_text(self.place / "params.yaml", yaml.safe_dump(dict(params), sort_keys=False))

    def run(self, stage: str, stop: Stop, listener: Listener, *, force: bool = False) -> Outcome:
        """Start or resume a stage; `force`: though its result is in the cache."""
        with workspace.run_lock(root=self.place) as lock:
            return run_stage(stage, self.place, lock, stop, listener, force=force)

    def ended(self) -> None:
        """Remove the ended trial's checkpoints."""
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        self._mark.unlink(missing_ok=True)

    def looks(self, model: str) -> list[float]:
        """Return the validation losses of a successful training, in order."""
        with open(self.place / layout.curve(model), encoding="utf-8", newline="") as stream:
            return [float(row["valid_loss"]) for row in csv.DictReader(stream) if row["valid_loss"]]

    def value(self, model: str) -> float:
        """Return the validation loss of its kept weights."""
        return float(self.metrics("train", model)["valid_loss"])

    def metrics(self, stage: str, model: str) -> dict[str, Any]:
        """Return the metrics of a finished stage."""
        found: dict[str, Any] = storage.read_json(self.place / layout.metrics(stage, model))
        return found

    def speed(self, model: str) -> float | None:
        """Return the tokens/s (texts/s ...) of its steps, the median of its live points; None if from the cache."""
        lines = [line for line in Tail(self.points(model)).lines() if line["kind"] == "live"]
        rates = [
            float(value)
            for line in lines
            for key, value in line.items()
            if key.endswith("_per_second") and key != "flops_per_second"
        ]
        return statistics.median(rates) if rates else None


class Looks:
    """The validation losses of a running training, from its file of points."""

    def __init__(self, points: Path) -> None:
        self._tail, self._found = Tail(points), dict[int, float]()

    def __call__(self) -> list[float]:
        """Return all so far, in order; each once, also where a resumed training wrote it again."""
        for line in self._tail.lines():
            if line["kind"] == "row" and "valid_loss" in line:
                # Rounded as in the curve's file, so that a trial is judged alike while it runs and afterwards.
                self._found.setdefault(int(line["step"]), float(f"{line['valid_loss']:.8g}"))
        return [loss for _, loss in sorted(self._found.items())]


def _link(path: Path, to: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to, target_is_directory=True)


def _cache_of(root: Path) -> str:
    """Return the absolute path of a workspace's DVC cache."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dvc", "cache", "dir"],
        cwd=root,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise UserError(f"DVC does not say where its cache is: {done.stderr.strip()}", root)
    return str((root / done.stdout.strip()).resolve())
