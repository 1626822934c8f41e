"""What a workspace holds once all is done, to be compared with that of an undisturbed run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import psutil
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from lexmill.base import checkout, workspace
from lexmill.runner.record import records
from lexmill.tracking import runs, store
from lexmill.tracking.finding import MODEL, PARENT
from tests.e2e.conftest import Project
from tests.faults.victim import Victim

ENDED = {"FINISHED", "FAILED", "KILLED"}
BY_THE_CLOCK = ("live/", "system/", "stages/")  # metrics that two equal trainings do not share
RESULTS = ("artifacts", "metrics", "reports")


def outputs(root: Path) -> dict[str, list[dict[str, object]]]:
    stages = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    return {name: stage.get("outs", []) for name, stage in stages.items()}


def contents(root: Path) -> dict[str, str]:
    """The hash of the bytes of every stage's outputs; not DVC's word for it."""
    places = [root / str(output["path"]) for outs in outputs(root).values() for output in outs]
    paths = [path for place in places for path in ([place] if place.is_file() else place.rglob("*")) if path.is_file()]
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def client_of(project: Project) -> MlflowClient:
    uri = store.absolute_uri("sqlite:///mlflow.db", project.root)
    return MlflowClient(uri, uri)


def registry(client: MlflowClient) -> list[list[object]]:
    """Each version: its model, number, what it was made from, and whether it is the champion."""
    found = []
    for one in client.search_model_versions():
        champion = client.get_model_version_by_alias(one.name, "champion").version
        made = {key: value for key, value in one.tags.items() if "fingerprint" in key or "kind" in key}
        found.append([one.name, one.version, sorted(made.items()), champion == one.version])
    return sorted(found)


def runs_of(client: MlflowClient) -> list[Run]:
    return list(client.search_runs([one.experiment_id for one in client.search_experiments()], max_results=10_000))


def models(client: MlflowClient) -> dict[str, Run]:
    """The finished run of each model; there is one."""
    finished = [run for run in runs_of(client) if MODEL in run.data.tags and run.info.status == "FINISHED"]
    found = {run.data.tags[MODEL]: run for run in finished}
    assert len(found) == len(finished), sorted(run.data.tags[MODEL] for run in finished)
    return found


def points(client: MlflowClient, run: Run) -> dict[str, list[tuple[int, float]]]:
    """Every point of every metric of a run, but for those that the clock decides."""
    return {
        key: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, key)]
        for key in sorted(run.data.metrics)
        if not key.startswith(BY_THE_CLOCK)
    }


def doubled(client: MlflowClient, run: Run) -> list[str]:
    """The metrics of a training of which the run has more than one point for a step."""
    keys = [key for key in run.data.metrics if not key.startswith("stages/")]  # a point each time it was tried
    steps = {key: [one.step for one in client.get_metric_history(run.info.run_id, key)] for key in keys}
    return [key for key, found in steps.items() if len(set(found)) < len(found)]


def assert_runs_closed(client: MlflowClient, root: Path, unknown: Collection[str] = ()) -> None:
    """One parent for each pipeline run, nothing shown as running, no stage that ran well twice in one of them.

    Args:
        unknown: tokens of runs that this server has never heard of.
    """
    listed = runs_of(client)
    assert {run.info.status for run in listed} <= ENDED, [(r.info.run_name, r.info.status) for r in listed]
    parents = [run.data.tags[runs.RUN] for run in listed if runs.RUN in run.data.tags]
    kept = [record for record in records(root) if record.token not in unknown]
    assert sorted(parents) == sorted(record.token for record in kept)
    assert all(record.ended for record in kept)
    parent_ids = {run.info.run_id for run in listed if runs.RUN in run.data.tags}
    stages = [run for run in listed if runs.STAGE in run.data.tags]
    if unknown:  # models of those runs are published here without their parents
        stages = [run for run in stages if PARENT in run.data.tags]
    assert {run.data.tags[PARENT] for run in stages} <= parent_ids
    well = [(r.data.tags[PARENT], r.data.tags[runs.STAGE]) for r in stages if r.info.status == "FINISHED"]
    assert len(set(well)) == len(well), sorted(well)


def left_behind(root: Path) -> list[str]:
    """Half-written files and folders, and checkpoints; one from which a longer training can go on is kept for good."""
    places = [root / name for name in (*RESULTS, ".lexmill")]
    found = [path for place in places for path in place.rglob("*") if path.name.endswith(".tmp")]
    found += (root / ".lexmill" / "checkpoints").glob("*/step-*")
    return [path.relative_to(root).as_posix() for path in found]


def outcome(project: Project) -> dict[str, Any]:
    """All of it that an interrupted and an undisturbed run have in common."""
    root = project.root
    return {
        "results": contents(root),
        "outputs": outputs(root),
        "inputs": checkout.dvc_lock_digest(root),
        "registry": registry(client_of(project)),
    }


def pids(held: Any) -> list[int]:
    """Return all process ids in DVC's file of held paths."""
    if isinstance(held, dict):
        return [held["pid"]] if "pid" in held else [pid for one in held.values() for pid in pids(one)]
    return [pid for one in held for pid in pids(one)]


def assert_nothing_held(project: Project, *victims: Victim) -> None:
    """No process, lock or half file is left."""
    root = project.root
    for victim in victims:
        assert victim.processes() == [], victim.said()
    with workspace.run_lock(root=root, wait_seconds=0):
        pass
    held = root / ".dvc" / "tmp" / "rwlock"
    # An entry of a dead process holds nothing: DVC itself takes it away when it needs the path.
    holders = pids(json.loads(held.read_text() or "{}")) if held.exists() else []
    assert not [pid for pid in holders if psutil.pid_exists(pid)], "DVC's held paths"
    assert not [name for name in left_behind(root) if name.endswith(".tmp")]
