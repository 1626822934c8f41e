"""Send the points of a training from its local file to its MLflow run, each exactly once.

    .lexmill/metrics/<run>.jsonl        the points of a training, line by line (by `training.watching`)
    .lexmill/metrics/<run>.sent.json    how much of it was sent, and to which run
    .lexmill/metrics/<run>.<training>.jsonl    that of an earlier training, until it is sent

A training's run has the tag `lexmill.training`, and later its weights as a tag, by which publishing finds and completes
it. A row of the curve becomes `curves/*`, a live point `live/*`, the machine's state `system/*`, a sample a text file
`samples/*`. The cursor is marked before each call; after an interrupted call (a kill, an outage), or with another run's
cursor, the store is asked for its points.
Cost: one call per thousand points, and the cursor written twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import storage
from lexmill.tracking.finding import find, make, model_tags

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

TRAINING = "lexmill.training"
WEIGHTS = "lexmill.weights"
PREFIXES = {"row": "curves", "live": "live", "system": "system"}
SENT = (*PREFIXES, "sample")
MOST_POINTS = 1000

Line = dict[str, Any]
Place = tuple[str, int]  # metric, step


def file_of(stage: str, name: str, root: Path = Path()) -> Path:
    """Return the file of points of a model's training by a stage."""
    return root / ".lexmill" / "metrics" / f"{stage}-{name}.jsonl"


def lock_of(points: Path) -> Path:
    """Return the lock file of the sending process."""
    return points.with_suffix(".sending.lock")


@dataclass
class Cursor:
    """How far a file has been sent.

    Attributes:
        training: its id.
        run_id: its run; empty before the first point.
        sent: the last step sent of each kind of line.
        under_way: whether a call has started whose result is unknown.
        tagged: the run's tag of weights.
        failure: why the last try failed, if it did.
        closed: whether the run is ended in the store.
        size: bytes of the file sent by then.
    """

    training: str
    run_id: str = ""
    sent: dict[str, int] = field(default_factory=dict)
    under_way: bool = False
    tagged: str = ""
    failure: str = ""
    closed: bool = False
    size: int = 0

    @staticmethod
    def path(points: Path) -> Path:
        return points.with_suffix(".sent.json")

    @classmethod
    def read(cls, points: Path, training: str) -> Cursor:
        """Return the cursor of this training; a new one where there is none."""
        try:
            found = cls(**storage.read_json(cls.path(points)))
        except (OSError, ValueError, TypeError):
            return cls(training)
        return found if found.training == training else cls(training)

    def write(self, points: Path) -> None:
        storage.write_json(self.path(points), asdict(self))


class Tail:
    """Reads complete lines of a growing file, each once; from the start again if the file was replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place: tuple[int, int] = (0, 0)  # inode, bytes read

    @property
    def size(self) -> int:
        """Return the bytes read so far."""
        return self._place[1]

    def lines(self) -> Iterator[Line]:
        """Yield new lines since the last call, without an incomplete last one."""
        try:
            with open(self.path, "rb") as stream:
                inode = os.fstat(stream.fileno()).st_ino
                start = self._place[1] if inode == self._place[0] else 0
                stream.seek(start)
                whole, newline, _ = stream.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        self._place = inode, start + len(whole) + len(newline)
        for line in whole.split(b"\n"):
            if line:
                yield storage.from_json(line)


def training_of(points: Path) -> str | None:
    """Return the training of a file of points; None where it is empty or missing."""
    first = next(Tail(points).lines(), None)
    return None if first is None else str(first["training"])


def run_token_of(points: Path) -> str:
    """Return the token of the last pipeline run that trained it; empty without one."""
    tokens = [str(line["token"]) for line in Tail(points).lines() if line["kind"] == "begin"]
    return tokens[-1] if tokens else ""


def weights_of(points: Path) -> str | None:
    """Return the hash of the training's final weights; None before its end or without a file."""
    return next((str(line["weights"]) for line in Tail(points).lines() if line["kind"] == "made"), None)


def complete(points: Path) -> bool:
    """Return whether all of a finished training's points are sent."""
    training, weights = training_of(points), weights_of(points)
    if training is None or weights is None:
        return False
    return _all_there(points, Cursor.read(points, training), weights)


def all_sent(points: Path) -> bool:
    """Return whether the store has all of the file, of a finished training or not, and its run is ended."""
    training = training_of(points)
    if training is None:
        return True
    cursor = Cursor.read(points, training)
    if cursor.closed and cursor.size == points.stat().st_size:
        return True
    return cursor.closed and _all_there(points, cursor, weights_of(points) or "")


def _all_there(points: Path, cursor: Cursor, weights: str) -> bool:
    newest: dict[str, int] = {}
    for line in Tail(points).lines():
        if line["kind"] in SENT:
            newest[line["kind"]] = line["step"]
    sent = all(cursor.sent.get(kind, 0) >= step for kind, step in newest.items())
    return sent and not cursor.under_way and cursor.tagged == weights


class Delivery:
    """Sends what is new in a file of points, again and again.

    Args:
        name: the model's name, for a new run.
        into: the run to use where this training has none; empty: a new one.
    """

    def __init__(self, client: MlflowClient, experiment_id: str, points: Path, name: str, into: str = "") -> None:
        self._client, self._experiment_id, self._points, self._name = client, experiment_id, points, name
        self._tail = Tail(points)
        self._waiting: list[Line] = []
        self._ours = True
        self.sent = 0
        head = next(Tail(points).lines())
        self._cursor = Cursor.read(points, head["training"])
        self._there: set[Place] = set()
        run = self._find(into) or self._create(head)
        self.run_id: str = run.info.run_id
        if self._cursor.run_id != self.run_id:
            self._cursor = Cursor(head["training"], self.run_id, under_way=True)
        if self._cursor.under_way:
            self._there = points_of(client, run)

    @property
    def made(self) -> bool:
        """Return whether the training is finished: its run is tagged with its weights."""
        return bool(self._cursor.tagged)

    def send(self) -> None:
        """Send all of the file that the run lacks."""
        for line in self._tail.lines():
            if line["kind"] == "training":
                self._ours = line["training"] == self._cursor.training  # the file may have been replaced
            if self._ours:
                self._waiting.append(line)
        self._send_metrics()
        self._send_samples()
        self._send_weights()
        self._waiting = []
        if self._cursor.failure:
            self._cursor.failure = ""
            self._cursor.write(self._points)

    def begin(self) -> None:
        """Mark the run as running."""
        if self._cursor.closed:
            self._cursor.closed = False
            self._cursor.write(self._points)
        self._client.update_run(self.run_id, status="RUNNING")

    def end(self, when: int | None = None) -> None:
        """End the run, finished if its weights were made; `when` in milliseconds since 1970, default now."""
        self._client.set_terminated(self.run_id, "FINISHED" if self.made else "KILLED", when)
        self._cursor.closed, self._cursor.size = True, self._tail.size
        self._cursor.write(self._points)

    def _find(self, into: str) -> Run | None:
        from mlflow.exceptions import MlflowException

        known = find(self._client, self._experiment_id, {TRAINING: self._cursor.training})
        if known or not into:
            return known
        try:
            return self._client.get_run(into)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None

    def _create(self, head: Line) -> Run:
        tags = {TRAINING: head["training"], **model_tags(self._name)}
        return make(self._client, self._experiment_id, self._name, head["time"], tags)

    def _send_metrics(self) -> None:
        from mlflow.entities import Metric

        batch: list[Metric] = []
        reached = dict(self._cursor.sent)
        for line in self._new(*PREFIXES):
            found = [
                Metric(key, value, line["time"], line["step"])
                for key, value in _values(line)
                if (key, line["step"]) not in self._there
            ]
            if len(batch) + len(found) > MOST_POINTS:
                self._call(batch, reached)
                batch = []
            batch.extend(found)
            reached[line["kind"]] = line["step"]
        self._call(batch, reached)
        self._there = set()

    def _call(self, batch: list[Any], reached: dict[str, int]) -> None:
        if reached == self._cursor.sent:
            return
        if batch:
            self._cursor.under_way = True
            self._cursor.write(self._points)
            self._client.log_batch(self.run_id, metrics=batch)
            self.sent += len(batch)
        self._cursor.sent, self._cursor.under_way = dict(reached), False
        self._cursor.write(self._points)

    def _send_samples(self) -> None:
        for line in self._new("sample"):
            self._client.log_text(self.run_id, line["text"], f"samples/step-{line['step']:08d}.txt")
            self._cursor.sent["sample"] = line["step"]
            self._cursor.write(self._points)

    def _send_weights(self) -> None:
        for line in self._waiting:
            if line["kind"] == "made" and line["weights"] != self._cursor.tagged:
                self._client.set_tag(self.run_id, WEIGHTS, line["weights"])
                self._cursor.tagged = line["weights"]
                self._cursor.write(self._points)

    def _new(self, *kinds: str) -> list[Line]:
        """Return unsent lines: a resumed training repeats the lines after its checkpoint."""
        sent = self._cursor.sent
        return [line for line in self._waiting if line["kind"] in kinds and line["step"] > sent.get(line["kind"], -1)]


def _values(line: Line) -> Iterator[tuple[str, float]]:
    """Yield the metrics of a line, without texts ("unknown")."""
    for key, value in line.items():
        if key not in ("kind", "time", "step") and isinstance(value, int | float):
            yield f"{PREFIXES[line['kind']]}/{key}", float(value)


def points_of(client: MlflowClient, run: Run) -> set[Place]:
    """Return the points of curves that a run has."""
    keys = [key for key in run.data.metrics if key.partition("/")[0] in PREFIXES.values()]
    return {(key, point.step) for key in keys for point in client.get_metric_history(run.info.run_id, key)}
