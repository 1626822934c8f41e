"""What a stage costs more under Prefect: the flow beside `lexmill run`.

Both sides: the command as typed, in the workspace of `benchmarks.noop` (small stages, each with a script, a param and
the output of another stage), with a Prefect server that runs already, on a database of its own. Once one stage is to
be run, once all. Wall seconds from the command's start to its end; seconds a stage: the difference of both runs over
the difference in stages, so that neither side's own start counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from benchmarks.measure import ROOT, Comparison, in_turn
from benchmarks.noop import make_project


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The address of a Prefect server on a database of its own, as long as the block runs."""
    from lexmill.commands.servers import free_port, serving_prefect

    before = {name: os.environ.pop(name, None) for name in ("PREFECT_HOME", "PREFECT_API_URL")}
    try:
        with serving_prefect(folder, free_port()) as made:
            made.wait()
            yield made.url
    finally:
        os.environ.update({name: value for name, value in before.items() if value is not None})


def compare(repetitions: int, stages: int = 25) -> list[Comparison]:
    """Measure both commands in a workspace of so many stages."""
    with tempfile.TemporaryDirectory() as folder, server(Path(folder) / "server") as url:
        root = Path(folder) / "project"
        environment = make_project(root, stages) | {"PYTHONPATH": str(ROOT)}
        environment |= {"PREFECT_API_URL": f"{url}/api", "PREFECT_HOME": str(Path(folder) / "home")}
        ours, peer = in_turn(
            lambda: _both(root, environment, stages, "flows", "run"),
            lambda: _both(root, environment, stages, "lexmill.cli", "run"),
            repetitions,
        )
    names = ("Prefect flow", "lexmill run")
    rows = [("one", f"one stage of {stages}"), ("all", f"{stages} stages"), ("each", "a stage")]
    return [Comparison("prefect", what, "s", (names[0], ours[key]), (names[1], peer[key])) for key, what in rows]


def _both(root: Path, environment: dict[str, str], stages: int, *command: str) -> dict[str, float]:
    """Seconds for a run of one stage, of all, and of one more."""
    one = _seconds(root, environment, [stages - 1], command)
    every = _seconds(root, environment, list(range(stages)), command)
    return {"one": one, "all": every, "each": (every - one) / (stages - 1)}


def _seconds(root: Path, environment: dict[str, str], changed: list[int], command: tuple[str, ...]) -> float:
    """Change the param of some stages and run."""
    path = root / "choices.yaml"
    choices = yaml.safe_load(path.read_text(encoding="utf-8"))
    for stage in changed:
        choices[f"stage{stage}"] = time.time_ns()
    path.write_text(yaml.safe_dump(choices), encoding="utf-8")
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - begun
    if done.returncode != 0:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    recorded = (root / "dvc.lock").read_text(encoding="utf-8")
    if not all(str(choices[f"stage{stage}"]) in recorded for stage in changed):
        raise RuntimeError(f"{command} did not run all that had changed:\n{done.stdout}{done.stderr}")
    return took
