"""Send what waits in the workspace for MLflow, points of trainings and records of runs, exactly once.

`waiting` reads only the files, in milliseconds; `send` sends all. After an interruption the next `send` resumes: each
file's cursor says how far it got, and the store is asked for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lexmill.base import workspace
from lexmill.base.errors import RetryableError
from lexmill.base.storage import try_lock
from lexmill.tracking import runs
from lexmill.tracking.database import locked
from lexmill.tracking.finding import no_repeats
from lexmill.tracking.points import Cursor, Delivery, Tail, all_sent, lock_of, run_token_of
from lexmill.tracking.store import experiment_id, opened, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

FOLDER = Path(".lexmill") / "metrics"
_KEPT_RECORDS = 200

RunOfModel = Callable[["MlflowClient", str, str], "str | None"]
"""Returns a model's run, by client, experiment and model name; None where the store has none."""


@dataclass
class Waiting:
    """What is not yet in the store.

    Attributes:
        points: files of trainings.
        records: of runs that have ended.
        running: messages about what is still running or cannot be read.
    """

    points: list[Path] = field(default_factory=list)
    records: list[Path] = field(default_factory=list)
    running: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.points or self.records)


@dataclass(frozen=True)
class Sending:
    """How to send.

    Attributes:
        experiment: the experiment of trainings that no pipeline run started.
        say: called with a line for each thing sent.
        seconds: time limit, after which the rest is left; None: none.
    """

    root: Path
    uri: str
    experiment: str
    run_of_model: RunOfModel
    say: Callable[[str], None]
    seconds: float | None = None


def waiting(root: Path) -> Waiting:
    """Return what a workspace has for the store."""
    found = Waiting()
    for path in sorted((root / FOLDER).glob("*.jsonl")):
        if _is_done(path):
            _forget(path)
        elif not _is_whole(path):
            found.running.append(f"{path}: not the points of a training; move it away")
        elif _is_sending(path):
            found.running.append(f"{path.stem}: its training is sending it")
        else:
            found.points.append(path)
    for path in runs.files(root):
        record = runs.read(path)
        if record is None or runs.RunCursor.read(path, record["token"]).done:
            continue
        if record["ended"] is None:
            found.running.append(f"{runs.name_of(record)}: not ended yet")
        else:
            found.records.append(path)
    return found


def send(how: Sending) -> Waiting:
    """Send what waits; return what still waits afterwards.

    Raises:
        RetryableError: the store does not answer or failed, or the time is up; what was sent stays.
        UserError: the store refuses us.
    """
    with locked(how.root / ".lexmill" / "sync.lock"):
        found = waiting(how.root)
        if found:
            with opened(how.uri, how.root) as client, no_repeats():
                _Sender(client, how).send(found)
            _prune(how.root)
        return waiting(how.root) if found else found


class _Sender:
    def __init__(self, client: MlflowClient, how: Sending) -> None:
        self._client, self._how = client, how
        self._experiments: dict[str, str] = {}
        self._until = None if how.seconds is None else time.monotonic() + how.seconds

    def send(self, found: Waiting) -> None:
        for path in found.points:
            self._points(path)
        trained = self._trained({str((runs.read(path) or {}).get("token")) for path in found.records})
        for path in found.records:
            self._record(path, trained)

    def _experiment(self, name: str) -> str:
        name = name or self._how.experiment
        if name not in self._experiments:
            database = sqlite_path(self._how.uri, self._how.root)
            self._experiments[name] = experiment_id(self._client, name, database)
        return self._experiments[name]

    def _in_time(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise RetryableError(
                f"the tracking store takes more than {self._how.seconds:.0f} s; `lexmill sync` sends the rest"
            )

    def _points(self, path: Path) -> None:
        self._in_time()
        with unless_sending(path) as free:
            if not free:
                return
            head = next(Tail(path).lines())
            stage, _, name = str(head["run"]).partition("-")
            delivery = Delivery(self._client, self._experiment(self._experiment_of(path)), path, name)
            delivery.send()
            if not _is_held(f"{stage}@{name}", self._how.root):
                delivery.end(max(line["time"] for line in Tail(path).lines()))
        if delivery.sent:
            self._how.say(f"{name}: {delivery.sent} points of its training")
        if all_sent(path):
            _forget(path)

    def _experiment_of(self, points: Path) -> str:
        """Return the experiment of the pipeline run that trained it; params.yaml may have changed."""
        token = run_token_of(points)
        path = runs.file_of(token, self._how.root) if token else None
        record = runs.read(path) if path else None
        return str(record["experiment"]) if record else ""

    def _trained(self, tokens: Collection[str]) -> dict[tuple[str, str], str]:
        """Return the MLflow runs of the trainings of these pipeline runs, by run token and stage address.

        A training whose points went to another store, for the settings name this one since, is sent to this one too.
        """
        found: dict[tuple[str, str], str] = {}
        for path in filter(_is_whole, sorted((self._how.root / FOLDER).glob("*.jsonl"))):
            head = next(Tail(path).lines(), None)
            token = run_token_of(path)
            if head is not None and token in tokens:
                stage, _, name = str(head["run"]).partition("-")
                run_id = Cursor.read(path, head["training"]).run_id
                if run_id and not runs.lives(self._client, run_id):
                    self._points(path)
                    run_id = Cursor.read(path, head["training"]).run_id
                if run_id:
                    found[token, f"{stage}@{name}"] = run_id
        return found

    def _record(self, path: Path, trained: dict[tuple[str, str], str]) -> None:
        self._in_time()
        record = runs.read(path)
        assert record is not None
        experiment = self._experiment(record["experiment"])

        def run_of(stage: str) -> str | None:
            self._in_time()
            group, _, key = stage.rpartition(":")[2].partition("@")
            if group in runs.OF_A_MODEL:
                return self._how.run_of_model(self._client, experiment, key)
            return trained.get((record["token"], stage))

        count = runs.RunDelivery(self._client, experiment, path, run_of).send()
        self._how.say(f"{runs.name_of(record)}: the run with {count} stage{'' if count == 1 else 's'}")


def _is_done(points: Path) -> bool:
    """Return whether all of a file is sent; often one check of its size."""
    try:
        return all_sent(points)
    except (ValueError, KeyError, TypeError):
        return False  # no file of points: `_is_whole` reports it


def _is_whole(points: Path) -> bool:
    """Return whether all lines are valid; a power loss may corrupt the file."""
    try:
        return all(line["kind"] and int(line["time"]) for line in Tail(points).lines())
    except (ValueError, KeyError, TypeError):
        return False


def _prune(root: Path) -> None:
    """Remove the oldest sent records."""
    for path in runs.files(root)[:-_KEPT_RECORDS]:
        record = runs.read(path)
        if record is not None and runs.RunCursor.read(path, record["token"]).done:
            for one in (path, runs.RunCursor.path(path), runs.lock_of(path)):
                one.unlink(missing_ok=True)


def _forget(points: Path) -> None:
    """Remove the sent file of an earlier training; the newest of each model stays."""
    head = next(Tail(points).lines(), None)
    if head is not None and points.stem != head["run"]:
        Cursor.path(points).unlink(missing_ok=True)
        lock_of(points).unlink(missing_ok=True)
        points.unlink()


@contextmanager
def unless_sending(points: Path) -> Iterator[bool]:
    """Hold the lock for sending this file; yield False at once where another process has it."""
    with open(lock_of(points), "ab") as stream:
        yield try_lock(stream)


def _is_sending(points: Path) -> bool:
    with unless_sending(points) as free:
        return not free


def _is_held(stage: str, root: Path) -> bool:
    """Return whether a process runs a stage."""
    path = root / workspace.HOME / "locks" / workspace.file_name(stage)
    if not path.exists():
        return False
    with open(path, "ab") as stream:
        return not try_lock(stream)
