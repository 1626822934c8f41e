"""`lexmill compare PRESET...`: train models of different families on equal terms; one table, two pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lexmill.base import layout, storage
from lexmill.base.code import Code
from lexmill.base.errors import EXIT_DONE, UserError
from lexmill.base.progress import say
from lexmill.base.shown import print_line
from lexmill.base.workspace import run_lock
from lexmill.commands.compare import loop, measuring, sizing, subjects
from lexmill.commands.compare.budget import Budgets, with_steps
from lexmill.commands.compare.loop import Loop, Plan
from lexmill.commands.compare.subjects import Subject
from lexmill.commands.run import preflight
from lexmill.commands.trainings.inputs import hashes_of, make
from lexmill.commands.trainings.seeded import Stopped
from lexmill.commands.trainings.sending import Sending
from lexmill.compute.execution import load_execution
from lexmill.report import comparison
from lexmill.report.comparison_charts import METRIC, standalone
from lexmill.runner.inputs import makers_of


def compare(presets: Sequence[str], budgets: Sequence[str], *, seeds: int, factor: float, data: str | None) -> int:
    """Tune, train and evaluate every model, then write and print what came out; return the exit code.

    Args:
        presets: of conf/model/; empty: every language model named `*_tiny`.
        budgets: of each model, as `1e6 tokens`.
        seeds: trainings of each model at its best rate.
        factor: between the rates of the grid.
        data: the model of params.yaml whose data all read.

    Raises:
        UserError, UserErrors: a preset, a budget, params.yaml or the execution settings have errors.
        RetryableError: another run holds the workspace, or a training failed for a passing reason.
    """
    preflight()
    root = Path.cwd()
    spent = Budgets.parse(budgets)
    chosen = subjects.load(presets, data, root)
    code = make(_stages(chosen, root))
    if code != EXIT_DONE:
        return code
    with run_lock(root=root):
        try:
            return Comparison(chosen, spent, seeds, factor, root).run()
        except Stopped as stop:
            say("the comparison was stopped; the same command resumes it")
            return stop.code


def _stages(chosen: Sequence[Subject], root: Path) -> list[str]:
    """Return the stages of params.yaml that make what the models read."""
    paths = list(dict.fromkeys(path for subject in chosen for path in subject.reads))
    makers = makers_of(paths, root)
    for path in paths:
        if path not in makers and path.startswith(f"{layout.ARTIFACTS}/"):
            raise UserError(
                f"no stage makes {path}, which the presets read; add a model that reads it to params.yaml, or give"
                " --data MODEL"
            )
    return list(dict.fromkeys(makers.values()))


class Comparison:
    """One comparison, its inputs made and its workspace locked."""

    def __init__(self, chosen: Sequence[Subject], budgets: Budgets, seeds: int, factor: float, root: Path) -> None:
        self._root, self._budgets = root, budgets
        first = chosen[0]
        paths = sorted({path for subject in chosen for path in subject.reads})
        known = {
            "budget": str(budgets),
            "inputs": hashes_of(paths, root),
            "data_seed": first.base["data_seed"],
            "evaluation": asdict(first.parsed().evaluation),
        }
        self._identity = storage.fingerprint(known)
        slug = re.sub(r"[^0-9A-Za-z.]+", "-", str(budgets))
        self._folder = root / loop.FOLDER / f"{slug}-{self._identity[:8]}"
        self._seeds = range(int(first.base["training_seed"]), int(first.base["training_seed"]) + seeds)
        code = Code()
        digests = {
            one.name: [
                code.stage(stage, one.entry["kind"], one.entry["family"]).digest for stage in ("train", "evaluate")
            ]
            for one in chosen
        }
        self._chosen, self._factor, self._digests = chosen, factor, digests
        self._speeds: dict[str, float] = {}
        self._sending = Sending(load_execution(), root, "comparison")
        plan = Plan(factor, self._seeds, digests)
        self._loop = Loop(self._folder, root, [one.name for one in chosen], plan, self._send)
        storage.write_json(self._folder / "sweep.json", self._about())

    def run(self) -> int:
        """Train what is missing, measure, write and show the results; return the exit code."""
        sized = [self._sized(subject) for subject in self._chosen]
        rows = [self._row(subject) for subject in sized]
        if all(row[METRIC] is None for row in rows):
            raise UserError(f"no training of the comparison succeeded; the last failed with: {rows[-1]['failed']}")
        costs = [self._costs(subject) for subject in sized]
        for subject, row, cost in zip(sized, rows, costs, strict=True):
            row["lengths"] = cost["lengths"]
            row["tokens_per_second"] = None if row[METRIC] is None else self._speed(subject)
        entry = sized[0].entry
        found = {
            "budget": str(self._budgets),
            "corpus": entry["data"]["corpus"],
            "tokenizer": entry["data"]["tokenizer"],
            "context": entry["shape"]["context"],
            "seeds": list(self._seeds),
            "factor": self._factor,
            "machine": costs[0]["machine"],
            "models": rows,
        }
        self._write(found)
        self._send()
        self._sending.report()
        return EXIT_DONE

    def _write(self, found: dict[str, Any]) -> None:
        """Write all numbers, the table and the pictures; print the table."""
        shown = comparison.show(found)
        table, folder = comparison.markdown(shown), self._root / layout.COMPARISON_PICTURES
        storage.write_json(self._root / layout.COMPARISON, found)
        storage.write_text(folder / "table.md", table)
        storage.write_text(self._folder / "note.md", table)
        for name, picture in (("quality", shown.quality), ("cost", shown.cost)):
            if picture is not None:
                storage.write_text(folder / f"{name}.svg", standalone(picture))
        print_line(table)

    def _about(self) -> dict[str, Any]:
        base = self._chosen[0].base
        shown = {"budget": str(self._budgets), "factor": self._factor}
        known = {"title": f"comparison {self._folder.name}", "identity": self._identity, "model": ""}
        return {**known, "experiment": base["experiment"], "params": shown}

    def _sized(self, subject: Subject) -> Subject:
        """Return the model within its budgets."""
        if self._budgets.parameters is not None:
            subject = sizing.with_parameters(subject, self._budgets.parameters.amount)
        length = self._budgets.length
        if length is None:
            return subject
        rate = None
        if length.unit == "seconds":
            rate = self._speed(subject)
        steps = length.steps(subject.entry["recipe"]["batch"], sizing.sizes_of(subject).flops_per_token, rate)
        return subject.with_entry(with_steps(subject.entry, steps, subject.preset))

    def _speed(self, subject: Subject) -> float:
        """Return the tokens/s of a model's training, over a few steps of its own size."""
        if subject.preset not in self._speeds:  # a budget of seconds has asked before
            short = subject.with_entry(with_steps(subject.entry, 20, subject.preset))
            self._speeds[subject.preset] = self._loop.calibrate(short)
        return self._speeds[subject.preset]

    def _row(self, subject: Subject) -> dict[str, Any]:
        sizes, found = sizing.sizes_of(subject), self._loop.run(subject)
        flops = None if found["tokens"] is None else found["tokens"] * sizes.flops_per_token
        return {
            "preset": subject.preset,
            "family": subject.entry["family"],
            "parameters": sizes.parameters,
            "flops_per_token": sizes.flops_per_token,
            "training_flops": flops,
            **found,
        }

    def _costs(self, subject: Subject) -> dict[str, Any]:
        """Return what length costs the model, measured once and kept."""
        key = storage.fingerprint([subject.entry["shape"], self._digests[subject.name]])
        path = self._folder / "costs" / f"{key[:16]}.json"
        if not path.is_file():
            storage.write_json(path, measuring.costs(subject, self._root))
        found: dict[str, Any] = storage.read_json(path)
        return found

    def _send(self) -> None:
        self._sending(self._folder)
