"""A search of hyper-parameters in MLflow: one parent run, and one child run per trial with its values and curve.

Trials are on disk (`lexmill.commands.search.trials`), so a failing store loses nothing: the next call sends what is
missing. Runs are found by their tags, so each is made once.

    tags.`lexmill.search`         the identity of the search, on the parent and on its trials
    tags.`lexmill.search_trial`   the number of a trial

Cost: MLflow's import once; some five calls per trial.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import storage
from lexmill.tracking import view
from lexmill.tracking.database import locked
from lexmill.tracking.finding import PARENT, model_tags
from lexmill.tracking.points import MOST_POINTS, PREFIXES
from lexmill.tracking.store import experiment_id, opened, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

SEARCH = "lexmill.search"
TRIAL = "lexmill.search_trial"
STATE = "lexmill.search_state"
VALID_LOSS = "valid_loss"
_NOTE = "mlflow.note.content"
_STATUS = {"complete": "FINISHED", "pruned": "FINISHED", "failed": "FAILED"}


def send(uri: str, folder: Path, root: Path) -> None:
    """Send new trials of the search in `folder`; raise `RetryableError` or `UserError` where the store fails."""
    mark = folder / "sent.json"
    trials = [storage.read_json(path) for path in sorted((folder / "trials").glob("[0-9]*.json"))]
    with locked(folder / "sending.lock"):
        sent = storage.read_json(mark) if mark.is_file() else []
        new = [one for one in trials if one["number"] not in sent]
        if not new:
            return
        search = storage.read_json(folder / "search.json")
        with opened(uri, root) as client:
            experiment = experiment_id(client, search["experiment"], sqlite_path(uri, root))
            parent = _parent(client, experiment, search, new[0]["started"])
            for one in new:
                run_id = _run_of(client, experiment, parent, search, one)
                _fill(client, run_id, one, _points(folder / "trials" / f"{one['number']:04d}.jsonl"))
                sent.append(one["number"])
                storage.write_json(mark, sent)
            _tell_best(client, parent, search, trials)
            view.offer(client, experiment)


def _parent(client: MlflowClient, experiment: str, search: dict[str, Any], started: int) -> str:
    name = f"search {search['name']}"
    found = _run(client, experiment, f"tags.`{SEARCH}` = '{search['identity']}' and attributes.run_name = '{name}'")
    if found is not None:
        return str(found.info.run_id)
    tags = {SEARCH: search["identity"], **model_tags(search["model"])}
    made = client.create_run(experiment, start_time=started, tags=tags, run_name=name)
    from mlflow.entities import Param

    shown = {"model": search["model"], "seed": search["seed"], "pruner": search["pruner"]}
    shown |= {f"space.{key}": json.dumps(dimension) for key, dimension in search["space"].items()}
    client.log_batch(made.info.run_id, params=[Param(key, str(value)) for key, value in shown.items()])
    return str(made.info.run_id)


def _run(client: MlflowClient, experiment: str, which: str) -> Run | None:
    """Return the oldest run of a search."""
    found = client.search_runs([experiment], which, order_by=["attributes.start_time ASC"], max_results=1)
    return found[0] if found else None


def _run_of(client: MlflowClient, experiment: str, parent: str, search: dict[str, Any], trial: dict[str, Any]) -> str:
    """Return the run of a trial, made if need be."""
    number = trial["number"]
    which = f"tags.`{SEARCH}` = '{search['identity']}' and tags.`{TRIAL}` = '{number}'"
    run = _run(client, experiment, which)
    if run is None:
        tags = {SEARCH: search["identity"], TRIAL: str(number), STATE: trial["state"], PARENT: parent}
        tags |= model_tags(search["model"])
        name = f"{search['model']} {number}"
        run = client.create_run(experiment, start_time=trial["started"], tags=tags, run_name=name)
    return str(run.info.run_id)


def _fill(client: MlflowClient, run_id: str, trial: dict[str, Any], points: list[Metric]) -> None:
    """Log a trial; existing values stay."""
    from mlflow.entities import Metric, Param

    ended = trial["started"] + int(1000 * trial["seconds"])
    if trial["valid_loss"] is not None:
        points = [*points, Metric(VALID_LOSS, trial["valid_loss"], ended, 0)]
    client.log_batch(run_id, params=[Param(key, str(value)) for key, value in trial["values"].items()])
    for start in range(0, len(points), MOST_POINTS):
        client.log_batch(run_id, metrics=points[start : start + MOST_POINTS])
    if trial["message"]:
        client.set_tag(run_id, _NOTE, trial["message"])
    client.set_terminated(run_id, _STATUS[trial["state"]], ended)


def _points(path: Path) -> list[Metric]:
    from mlflow.entities import Metric

    found: list[Metric] = []
    if not path.is_file():
        return found  # its training came from the cache
    for line in path.read_text(encoding="utf-8").splitlines():
        point = json.loads(line)
        if prefix := PREFIXES.get(point["kind"]):
            found.extend(
                Metric(f"{prefix}/{key}", float(value), point["time"], point["step"])
                for key, value in point.items()
                if key not in ("kind", "time", "step") and isinstance(value, int | float)
            )
    return found


def _tell_best(client: MlflowClient, parent: str, search: dict[str, Any], trials: list[dict[str, Any]]) -> None:
    """Log the best loss so far, trial by trial, and the best values to the parent."""
    from mlflow.entities import Metric

    best: dict[str, Any] | None = None
    curve = []
    for one in trials:
        if one["state"] == "complete" and (best is None or one["valid_loss"] < best["valid_loss"]):
            best = one
        if best is not None:
            ended = one["started"] + int(1000 * one["seconds"])
            curve.append(Metric(f"best_{VALID_LOSS}", best["valid_loss"], ended, one["number"]))
    client.log_batch(parent, metrics=curve[-MOST_POINTS:])
    if best is not None:
        values = "\n".join(f"* `{key}` = {value}" for key, value in best["values"].items())
        note = f"Best of {len(trials)} trials: trial {best['number']}, valid loss {best['valid_loss']}\n\n{values}"
        client.set_tag(parent, _NOTE, note)
    last = trials[-1]
    client.set_terminated(parent, "FINISHED", last["started"] + int(1000 * last["seconds"]))
