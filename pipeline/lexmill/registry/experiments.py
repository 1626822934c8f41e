"""Send the models of an experiment of `dvc exp run` to MLflow as runs, with the metrics of `dvc exp show`.

A model that an experiment left unchanged keeps its run, which is only tagged. None is registered: only models of the
workspace are. After `dvc exp apply` publishing finds the run and registers it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lexmill.base import layout, storage
from lexmill.models.folder import WEIGHTS
from lexmill.params import Params
from lexmill.registry import package, record
from lexmill.tracking.store import experiment_id, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

NAMES = "lexmill.dvc_experiment"
BASELINE = "lexmill.dvc_experiment_baseline"
_COMMIT = "mlflow.source.git.commit"


def send_experiment(
    client: MlflowClient, uri: str, root: Path, *, name: str, commit: str, baseline: str, folder: Path, params: Params
) -> list[str]:
    """Send the packages of an experiment to MLflow; return the run id of each.

    Args:
        client, uri, root: of the store; the workspace.
        name, commit, baseline: of the experiment.
        folder: its packages, reports and dvc.lock.
        params: of the experiment.
    """
    where = experiment_id(client, params.experiment, sqlite_path(uri, root))
    found = []
    for model in params.models:
        packed = folder / layout.package(model)
        if not packed.is_dir():
            continue
        description = package.verify(packed)
        run = record.find_or_start(client, where, description, storage.sha256_file(packed / package.MODEL / WEIGHTS))
        run_id = run.info.run_id
        names = [one for one in run.data.tags.get(NAMES, "").split(", ") if one]
        if run.info.status != "FINISHED" or "lexmill.dvc_lock" not in run.data.tags:
            record.fill(client, run, packed, description, folder)
            client.set_tag(run_id, _COMMIT, commit)
            client.set_tag(run_id, BASELINE, baseline)
            client.set_terminated(run_id, "FINISHED")
        client.set_tag(run_id, NAMES, ", ".join(dict.fromkeys([*names, name])))
        found.append(run_id)
    return found


def paths(params: Params) -> list[str]:
    """Return the paths of a commit that `send_experiment` needs."""
    places = (layout.package, layout.curve, layout.samples)
    return ["dvc.lock", *(str(at(model)) for at in places for model in params.models), str(layout.REPORTS / "plots")]
