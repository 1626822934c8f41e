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


def make(stages: Collection[str]) -> int:
    """Bring what these stages need up to date, without running them; return the exit code."""
    plan = read(targets=list(stages))
    needs = {need for stage in plan.stages if stage.name in stages for need in stage.needs}
    if not {stage.name for stage in plan.todo} - set(stages):
        return EXIT_DONE
    with open_run(sorted(needs), 2) as session:
        run_all(session)
        return session.code


def hashes(stage: str, root: Path) -> dict[str, str]:
    """Return hashes of a stage's inputs: outputs of other stages by dvc.lock, recipes by their bytes, its code."""
    lock = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8")) if (root / "dvc.lock").is_file() else {}
    made = {out["path"]: out["md5"] for stage in (lock.get("stages") or {}).values() for out in stage.get("outs", [])}
    found = code_of(stage, root)
    for path in inputs_of(stage, root):
        place = root / path
        if path in made:
            found[path] = str(made[path])
        elif place.is_dir():
            files = sorted(file for file in place.rglob("*.py"))
            found[path] = storage.fingerprint([[str(f.relative_to(place)), storage.sha256_file(f)] for f in files])
        elif place.is_file():
            found[path] = storage.sha256_file(place)
    return found
