"""Runs of the pipeline in MLflow: a parent run with a child run for each stage that ran.

    .lexmill/runs/<run>.json        the record of a run (by `runner.record`)
    .lexmill/runs/<run>.sent.json   how much of it was sent

The parent has the tag `lexmill.run`, a stage's run `lexmill.stage`. A model's training, evaluation and registration are
logged to the model's own run, a child of the pipeline run that trained it. An unchanged or restored stage is linked to
the run that made its result, by the tag `lexmill.stage_fingerprint`.

The process that sends a training's points may make the parent first, so a file lock guards it.
Cost: some four calls per stage that ran.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import storage
from lexmill.base.cutting import cut
from lexmill.tracking.database import locked
from lexmill.tracking.finding import FINGERPRINT, PARENT, find, make
from lexmill.tracking.links import run_url
from lexmill.tracking.names import entity_name, numbers_in
from lexmill.tracking.points import MOST_POINTS

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

FOLDER = Path(".lexmill") / "runs"
RUN = "lexmill.run"
STAGE = "lexmill.stage"
STAGE_FINGERPRINT = "lexmill.stage_fingerprint"
_LONGEST_NOTE = 4900
_MOST_CHILDREN = 10_000
_LINKED = ("restored", "unchanged")
_CODE_FOLDER = "pipeline/"
TRAINING = "train"
OF_A_MODEL = ("evaluate", "register")

Record = dict[str, Any]

_TEXTS = ("token", "what", "door", "experiment", "host", "started")


@dataclass
class RunCursor:
    """How far a run has been sent.

    Attributes:
        token: of the run.
        parent: its MLflow run; empty before the first call.
        stages: the MLflow run of each sent or linked stage ("": none).
        done: whether all is sent.
        failure: why the last try failed, if it did.
    """

    token: str
    parent: str = ""
    stages: dict[str, str] = field(default_factory=dict)
    done: bool = False
    failure: str = ""

    @staticmethod
    def path(record: Path) -> Path:
        return record.with_suffix(".sent.json")

    @classmethod
    def read(cls, record: Path, token: str) -> RunCursor:
        """Return the cursor of this run; a new one where there is none."""
        try:
            found = cls(**storage.read_json(cls.path(record)))
        except (OSError, ValueError, TypeError):
            return cls(token)
        return found if found.token == token else cls(token)

    def write(self, record: Path) -> None:
        storage.write_json(self.path(record), asdict(self))


def files(root: Path = Path()) -> list[Path]:
    """Return the records of the workspace's runs, the oldest first."""
    return [path for path in sorted((root / FOLDER).glob("*Z-*.json")) if path.name.count(".") == 1]


def read(path: Path) -> Record | None:
    """Read a record; return None where the file is none."""
    try:
        found = storage.read_json(path)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and _is_record(found) else None


def _is_record(found: Record) -> bool:
    """Return whether it has what is sent of a run, each of its kind."""
    stages, unchanged = found.get("stages"), found.get("unchanged")
    if not isinstance(stages, list) or not isinstance(unchanged, dict):
        return False
    texts = [found.get(key) for key in _TEXTS]
    texts += [stage.get(key) if isinstance(stage, dict) else None for stage in stages for key in ("name", "state")]
    if not all(isinstance(text, str) for text in [*texts, *unchanged.values()]):
        return False
    try:
        for key in ("started", "ended"):
            if key == "started" or found["ended"] is not None:
                _seconds(found, key)
    except (KeyError, TypeError, ValueError):
        return False
    return True


def file_of(token: str, root: Path = Path()) -> Path | None:
    """Return the record of the run with this token."""
    for path in (root / FOLDER).glob(f"*Z-{token[:8]}.json"):
        record = read(path)
        if record is not None and record["token"] == token:
            return path
    return None


def lock_of(path: Path) -> Path:
    """Return the lock file for finding or making a record's parent run."""
    return path.with_suffix(".parent.lock")


def name_of(record: Record) -> str:
    """Return a run's display name: `demo 2026-11-28 02:00`, in local time."""
    return f"{record['experiment'] or 'pipeline'} {time.strftime('%Y-%m-%d %H:%M', time.localtime(_seconds(record)))}"


def _seconds(record: Record, key: str = "started") -> int:
    return calendar.timegm(time.strptime(record[key], "%Y-%m-%dT%H:%M:%SZ"))


def ended(record: Record) -> int:
    """Return when a run ended, in milliseconds since 1970."""
    return 1000 * _seconds(record, "ended")


def parent(client: MlflowClient, experiment_id: str, path: Path) -> str:
    """Return the id of a record's parent run, made if need be; raise `ValueError` without such a record."""
    record = read(path)
    if record is None:
        raise ValueError(f"{path}: not the record of a run")
    with locked(lock_of(path)):
        cursor = RunCursor.read(path, record["token"])
        if cursor.parent and lives(client, cursor.parent):
            return cursor.parent
        run = find(client, experiment_id, {RUN: record["token"]})
        run = run or make(client, experiment_id, name_of(record), 1000 * _seconds(record), _parent_tags(record))
        RunCursor(record["token"], run.info.run_id).write(path)
        return str(run.info.run_id)


def lives(client: MlflowClient, run_id: str) -> bool:
    """Return whether the store has the run undeleted."""
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.get_run(run_id).info.lifecycle_stage == "active")
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False


def _parent_tags(record: Record) -> dict[str, str]:
    tags = {RUN: record["token"], "lexmill.door": record["door"], "mlflow.source.name": record["what"]}
    return tags | _git_tags(record) | {"lexmill.host": record["host"]}


def _git_tags(record: Record) -> dict[str, str]:
    if not record.get("commit"):
        return {}
    return {"mlflow.source.git.commit": record["commit"], "lexmill.git_dirty": "true" if record["dirty"] else "false"}


class RunDelivery:
    """Sends one finished run; `run_of` returns the MLflow run of a stage's model, None for a run of its own."""

    def __init__(
        self, client: MlflowClient, experiment_id: str, path: Path, run_of: Callable[[str], str | None] = lambda _: None
    ) -> None:
        record = read(path)
        assert record is not None
        self._client, self._experiment_id, self._path = client, experiment_id, path
        self._record, self._run_of = record, run_of
        self.parent = parent(client, experiment_id, path)
        self._cursor = RunCursor.read(path, record["token"])
        self._known: dict[str, str] | None = None
        self._children: set[str] | None = None

    def send(self) -> int:
        """Send what the store lacks; return how many stages were logged."""
        sent = 0
        for stage in self._record["stages"]:
            if stage["name"] in self._cursor.stages:
                continue
            if stage["state"] in _LINKED:
                self._keep(stage["name"], self._made_by(stage["name"], stage["fingerprint"]))
                continue
            self._keep(stage["name"], self._stage(stage))
            sent += 1
        for name, fingerprint in self._record["unchanged"].items():
            if name not in self._cursor.stages:
                self._cursor.stages[name] = self._made_by(name, fingerprint)
        self._end()
        return sent

    def _keep(self, stage: str, run_id: str) -> None:
        self._cursor.stages[stage] = run_id
        self._cursor.write(self._path)

    def _stage(self, stage: Record) -> str:
        """Log a stage that ran; return its run."""
        run_id = self._run_of(stage["name"])
        run = self._own(stage) if run_id is None else self._client.get_run(run_id)
        self._log(run, stage, own=run_id is None)
        return str(run.info.run_id)

    def _own(self, stage: Record) -> Run:
        """Return the run of a stage without a model's run."""
        tags = {PARENT: self.parent, STAGE: stage["name"]}
        if self._children is None:
            below = f"tags.`{PARENT}` = '{self.parent}'"
            listed = self._client.search_runs([self._experiment_id], below, max_results=_MOST_CHILDREN)
            self._children = {str(run.data.tags.get(STAGE)) for run in listed}
        known = stage["name"] in self._children
        run = find(self._client, self._experiment_id, tags) if known else None
        return run or make(self._client, self._experiment_id, stage["name"], 1000 * _seconds(stage), tags)

    def _log(self, run: Run, stage: Record, own: bool) -> None:
        from mlflow.entities import Metric

        run_id, group = run.info.run_id, stage["name"].rpartition(":")[2].partition("@")[0]
        prefix = "" if own else f"stages/{group}/"
        ended = 1000 * _seconds(stage) + round(1000 * stage["seconds"])
        about = {"state": stage["state"], "why": stage["why"], "message": cut(stage["message"], _LONGEST_NOTE)}
        tags = {f"lexmill.{prefix}{key}": value for key, value in about.items() if value}
        if stage["fingerprint"]:
            tags[_fingerprint_tag(stage["name"])] = stage["fingerprint"]
        trained = not own and is_training(stage)
        if trained:
            tags |= {PARENT: self.parent, STAGE: stage["name"]}
        if own or trained:  # publishing sees only the later checkout
            tags |= _git_tags(self._record)
        if own and self._record["dvc_lock"]:
            tags["lexmill.dvc_lock"] = self._record["dvc_lock"]
        numbers = {f"{prefix}seconds": stage["seconds"], f"{prefix}tries": stage["tries"]}
        if stage["code"] is not None:
            numbers[f"{prefix}exit_code"] = stage["code"]
        metrics = [Metric(key, float(value), ended, 0) for key, value in numbers.items()]
        metrics = [one for one in metrics if not self._has(run, one)]
        there = run.data.metrics
        for key, value in numbers_in(stage.get("metrics")):
            name = f"train/{key}" if trained else key
            if there.get(name) != value:  # publishing may have logged it: at the run's start
                metrics.append(Metric(name, value, ended if name in there else run.info.start_time, 0))
        self._batches(run_id, metrics, tags)
        if own or trained:
            self._log_inputs(run, stage)
        # The weights of a packaged model are whole, whatever became of a later try.
        failed = trained and stage["state"] != "ran" and FINGERPRINT not in run.data.tags
        if own or failed:
            self._client.set_terminated(run_id, status_of(stage["code"]), max(ended, run.info.start_time))

    def _batches(self, run_id: str, metrics: Sequence[Any], tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        for start in range(0, max(1, len(metrics)), MOST_POINTS):
            sent = [] if start else [RunTag(*item) for item in tags.items()]
            self._client.log_batch(run_id, metrics=metrics[start : start + MOST_POINTS], tags=sent)

    def _has(self, run: Run, metric: Any) -> bool:
        """Return whether a run has this very point."""
        if metric.key not in run.data.metrics:
            return False
        history = self._client.get_metric_history(run.info.run_id, metric.key)
        return any((one.step, one.timestamp) == (metric.step, metric.timestamp) for one in history)

    def _log_inputs(self, run: Run, stage: Record) -> None:
        """Log its input data with DVC's digests; the commit and the fingerprint cover its code."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        known = {one.dataset.name for one in run.inputs.dataset_inputs} if run.inputs else set()
        inputs = []
        for one in stage["inputs"]:
            if one["path"].startswith(_CODE_FOLDER) or one["path"] in known or "md5" not in one:
                continue
            source = storage.canonical_json({"path": one["path"], "md5": one["md5"]})
            profile = storage.canonical_json({"bytes": one.get("size")})
            data = Dataset(one["path"], one["md5"][:36], "dvc", source, profile=profile)
            inputs.append(DatasetInput(data, [InputTag("mlflow.data.context", stage["name"].partition("@")[0])]))
        if inputs:
            self._client.log_inputs(run.info.run_id, inputs)

    def _made_by(self, stage: str, fingerprint: str) -> str:
        """Return the run that made a result; empty where the store knows none."""
        if not fingerprint:
            return ""
        if self._known is None:
            self._known = _known(self._path)
        if fingerprint not in self._known:
            wanted = f"tags.`{_fingerprint_tag(stage)}` = '{fingerprint}'"
            found = self._client.search_runs([self._experiment_id], wanted, max_results=1)
            self._known[fingerprint] = str(found[0].info.run_id) if found else ""
        return self._known[fingerprint]

    def _end(self) -> None:
        """Complete and close the parent, and mark the cursor as done."""
        from mlflow.entities import Metric

        record, at = self._record, ended(self._record)
        states: dict[str, int] = {"unchanged": len(record["unchanged"])}
        for stage in record["stages"]:
            states[stage["state"]] = states.get(stage["state"], 0) + 1
        numbers = {f"stages/{state}": float(count) for state, count in states.items()}
        numbers["seconds"] = (at - 1000 * _seconds(record)) / 1000
        if record["code"] is not None:
            numbers["exit_code"] = float(record["code"])
        for stage in record["stages"]:
            numbers[f"seconds/{entity_name(stage['name'].replace('@', '.'))}"] = stage["seconds"]
        tags = {"mlflow.note.content": self._note()}
        if record["dvc_lock"]:
            tags["lexmill.dvc_lock"] = record["dvc_lock"]
        there = self._client.get_run(self.parent).data.metrics
        metrics = [Metric(key, value, at, 0) for key, value in numbers.items() if key not in there]
        self._batches(self.parent, metrics, tags)
        self._client.log_dict(self.parent, self._table(), "stages.json")
        self._client.set_terminated(self.parent, status_of(record["code"]), at)
        self._cursor.done, self._cursor.failure = True, ""
        self._cursor.write(self._path)
        if record["parent_run_id"] != self.parent:
            storage.write_json(self._path, {**record, "parent_run_id": self.parent})

    def _table(self) -> dict[str, Any]:
        """Return all stages of the run, also linked ones, as MLflow's table."""
        rows = [[s["name"], s["state"], s["code"], s["seconds"], s["why"]] for s in self._record["stages"]]
        rows += [[name, "unchanged", None, 0.0, ""] for name in self._record["unchanged"]]
        rows = [[*row, self._cursor.stages.get(str(row[0]), "")] for row in rows]
        return {"columns": ["stage", "state", "code", "seconds", "why", "run"], "data": rows}

    def _note(self) -> str:
        """Return the run as Markdown: a line for each started stage, with a link to its page."""
        lines = [f"`{self._record['what']}`", "", "| stage | state | seconds | why |", "|---|---|---|---|"]
        for stage in self._record["stages"]:
            run_id = self._cursor.stages.get(stage["name"])
            shown = stage["name"]
            if run_id:  # without the server's address, which may change
                shown = f"[{shown}]({run_url('', self._experiment_id, run_id).lstrip('/').partition('?')[0]})"
            about = cut(" ".join((stage["message"] or stage["why"]).split()), 80).replace("|", "\\|")
            lines.append(f"| {shown} | {stage['state']} | {stage['seconds']:.1f} | {about} |")
        if self._record["unchanged"]:
            lines += ["", f"{len(self._record['unchanged'])} stages unchanged; stages.json has all"]
        while sum(len(line) + 1 for line in lines) > _LONGEST_NOTE:
            del lines[-1]
        return "\n".join(lines)


def _known(path: Path) -> dict[str, str]:
    """Return the run of each fingerprint in the workspace's other records; empty where none was found."""
    found: dict[str, str] = {}
    for other in files(path.parent.parent.parent):
        record = None if other == path else read(other)
        if record is None:
            continue
        sent = RunCursor.read(other, record["token"]).stages
        made = {stage["name"]: stage["fingerprint"] for stage in record["stages"] if stage["code"] == 0}
        for name, fingerprint in {**record["unchanged"], **made}.items():
            if fingerprint and name in sent:
                found[fingerprint] = sent[name] or found.get(fingerprint, "")
    return found


def _fingerprint_tag(stage: str) -> str:
    """Return the tag of a stage's fingerprint, distinct for stages that share a model's run."""
    group = stage.rpartition(":")[2].partition("@")[0]
    return f"{STAGE_FINGERPRINT}.{group}" if group in OF_A_MODEL else STAGE_FINGERPRINT


def is_training(stage: Record) -> bool:
    """Return whether a recorded stage is a training, whose MLflow run is its model's."""
    return stage["name"].rpartition(":")[2].partition("@")[0] == TRAINING


def status_of(code: int | None) -> str:
    """Return MLflow's status for an exit code: interrupted, terminated and killed are KILLED."""
    return "KILLED" if code in (None, 130, 143) else "FAILED" if code else "FINISHED"
