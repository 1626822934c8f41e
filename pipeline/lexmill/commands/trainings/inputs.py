"""The inputs of trainings that run beside the workspace: made first, and part of their identity."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import yaml

from lexmill.base import storage
from lexmill.base.errors import EXIT_DONE
from lexmill.commands.run import open_run
from lexmill.runner.graph import read
from lexmill.runner.inputs import code_of, inputs_of
from lexmill.runner.session import run_all


def make_needs(stage: str) -> int:
    """Bring what a stage needs up to date, without running it; return the exit code."""
    plan = read(targets=[stage])
    if not {one.name for one in plan.todo} - {stage}:
        return EXIT_DONE
    return make(next(one.needs for one in plan.stages if one.name == stage))


def make(stages: Collection[str]) -> int:
    """Bring stages and what they need up to date; return the exit code."""
    with open_run(sorted(stages), 2) as session:
        if session.plan.todo:
            run_all(session)
        return session.code


def hashes(stage: str, root: Path) -> dict[str, str]:
    """Return hashes of a stage's inputs: outputs of other stages by dvc.lock, recipes by their bytes, its code."""
    return code_of(stage, root) | hashes_of(inputs_of(stage, root), root)


def hashes_of(paths: Collection[str], root: Path) -> dict[str, str]:
    """Return a hash of each path: an output of a stage by dvc.lock, anything else by its bytes."""
    lock = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8")) if (root / "dvc.lock").is_file() else {}
    made = {out["path"]: out["md5"] for stage in (lock.get("stages") or {}).values() for out in stage.get("outs", [])}
    found = {}
    for path in paths:
        place = root / path
        if path in made:
            found[path] = str(made[path])
        elif place.is_dir():
            files = sorted(file for file in place.rglob("*.py"))
            found[path] = storage.fingerprint([[str(f.relative_to(place)), storage.sha256_file(f)] for f in files])
        elif place.is_file():
            found[path] = storage.sha256_file(place)
    return found
