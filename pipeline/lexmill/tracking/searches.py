"""A search, a comparison or several seeds in MLflow: a parent run, a child run per trial with its values and curve.

Trials are on disk, so a failing store loses nothing: the next call sends what is missing. Runs are found by their tags,
so each is made once.

    <folder>/sweep.json           title, identity, experiment, model ("": trials name their own), params of the parent
    <folder>/trials/0001.json     number, state, values, valid_loss, message, started, seconds; of a comparison also
                                  model, metrics
    <folder>/trials/0001.jsonl    the points of its training
    <folder>/note.md              what the parent says of itself, of a comparison; a search names its best trial
    <folder>/summary.json         time, step and metrics of the parent, beside a note; of several seeds

    tags.`lexmill.search`         the identity, on the parent and on its trials
    tags.`lexmill.search_trial`   the number of a trial

Cost: MLflow's import once; some five calls per trial.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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


def send(uri: str, folder: Path, root: Path, metrics: Sequence[str]) -> None:
    """Send trials of `folder` that are new or have changed, and its note.

    Args:
        metrics: what the experiment's page shows of models.

    Raises:
        RetryableError, UserError: the store fails.
    """
    mark, note, noted = folder / "sent-trials.json", _text(folder / "note.md"), folder / "note-sent.md"
    trials = [storage.read_json(path) for path in sorted((folder / "trials").glob("[0-9]*.json"))]
    with locked(folder / "sending.lock"):
        sent = storage.read_json(mark) if mark.is_file() else {}
        new = [one for one in trials if sent.get(str(one["number"])) != storage.fingerprint(one)]
        if not new and note == _text(noted):
            return
        sweep = storage.read_json(folder / "sweep.json")
        with opened(uri, root) as client:
            experiment = experiment_id(client, sweep["experiment"], sqlite_path(uri, root))
            parent = _parent(client, experiment, sweep, trials[0]["started"])
            for one in new:
                run_id = _run_of(client, experiment, parent, sweep, one)
                _fill(client, run_id, one, _points(folder / "trials" / f"{one['number']:04d}.jsonl"))
                sent[str(one["number"])] = storage.fingerprint(one)
                storage.write_json(mark, sent)
            if sweep["model"]:
                _tell_best(client, parent, trials)
            elif note:
                client.set_tag(parent, _NOTE, note)
                _tell_summary(client, parent, folder / "summary.json")
                storage.write_text(noted, note)
            last = trials[-1]
            client.set_terminated(parent, "FINISHED", last["started"] + int(1000 * last["seconds"]))
            view.offer(client, experiment, metrics)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _parent(client: MlflowClient, experiment: str, sweep: dict[str, Any], started: int) -> str:
    name = sweep["title"]
    found = _run(client, experiment, f"tags.`{SEARCH}` = '{sweep['identity']}' and attributes.run_name = '{name}'")
    if found is not None:
        return str(found.info.run_id)
    tags = {SEARCH: sweep["identity"], **(model_tags(sweep["model"]) if sweep["model"] else {})}
    made = client.create_run(experiment, start_time=started, tags=tags, run_name=name)
    from mlflow.entities import Param

    client.log_batch(made.info.run_id, params=[Param(key, str(value)) for key, value in sweep["params"].items()])
    return str(made.info.run_id)


def _run(client: MlflowClient, experiment: str, which: str) -> Run | None:
    """Return the oldest such run."""
    found = client.search_runs([experiment], which, order_by=["attributes.start_time ASC"], max_results=1)
    return found[0] if found else None


def _run_of(client: MlflowClient, experiment: str, parent: str, sweep: dict[str, Any], trial: dict[str, Any]) -> str:
    """Return the run of a trial, made if need be."""
    number, model = trial["number"], trial.get("model") or sweep["model"]
    which = f"tags.`{SEARCH}` = '{sweep['identity']}' and tags.`{TRIAL}` = '{number}'"
    run = _run(client, experiment, which)
    if run is None:
        tags = {SEARCH: sweep["identity"], TRIAL: str(number), STATE: trial["state"], PARENT: parent}
        tags |= model_tags(model)
        name = f"{model} {number}"
        run = client.create_run(experiment, start_time=trial["started"], tags=tags, run_name=name)
    return str(run.info.run_id)


def _fill(client: MlflowClient, run_id: str, trial: dict[str, Any], points: list[Metric]) -> None:
    """Log a trial; existing values stay."""
    from mlflow.entities import Metric, Param

    ended = trial["started"] + int(1000 * trial["seconds"])
    if trial["valid_loss"] is not None:
        points = [*points, Metric(VALID_LOSS, trial["valid_loss"], ended, 0)]
    numbers = {key: value for key, value in trial.get("metrics", {}).items() if isinstance(value, int | float)}
    points = [*points, *(Metric(f"test/{key}", float(value), ended, 0) for key, value in numbers.items())]
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


def _tell_summary(client: MlflowClient, parent: str, path: Path) -> None:
    from mlflow.entities import Metric

    if path.is_file():
        found = storage.read_json(path)
        metrics = [Metric(key, value, found["time"], found["step"]) for key, value in found["metrics"].items()]
        for start in range(0, len(metrics), MOST_POINTS):
            client.log_batch(parent, metrics=metrics[start : start + MOST_POINTS])


def _tell_best(client: MlflowClient, parent: str, trials: list[dict[str, Any]]) -> None:
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
