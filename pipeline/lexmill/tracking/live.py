"""Points of a running training, sent to MLflow by a process of its own.

A process and not a thread, and one that runs only when a core would be idle: MLflow takes seconds of a processor to
import and tens of milliseconds a call, and torch's threads wait for the slowest of them. The file of points is the
queue between the two, so whatever happens here (an outage, a refusal, a server that hangs, a kill) costs no step and
loses no point: `lexmill sync` sends what is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lexmill.base import progress
from lexmill.base.workspace import TOKEN_VARIABLE
from lexmill.compute.execution import Execution
from lexmill.tracking import runs
from lexmill.tracking.child import Child
from lexmill.tracking.finding import PARENT
from lexmill.tracking.points import Cursor, Delivery, lock_of, training_of
from lexmill.tracking.store import experiment_id, locked, opened, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

_EVERY_SECONDS = 5.0
_SHARE = 0.0025
_TOO_SLOW = 75
_MOST_SECONDS = 60.0  # between two calls, also while the store fails
_PATIENCE_SECONDS = 10.0  # for what is under way when the training is over
# One try that ends soon: the next comes by itself.
_MANNERS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Request:
    """What the sending process is told, in one line on its standard input: an address may hold a password."""

    uri: str
    experiment: str
    name: str
    points: str
    every: float
    share: float
    patience: float
    root: str


class LiveSender:
    """Starts the sending process when there is something to send, and ends it.

    Args:
        uri: the store.
        experiment: the name of the experiment.
        name: of the model.
        root: the workspace.
        every: seconds between two calls, at least.
        share: of a core, that calls may take in the long run; where one costs more, the next comes later.
        patience: seconds to wait at the end.
        idle: run only when a core would be idle.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        name: str,
        *,
        root: Path = Path(),
        every: float = _EVERY_SECONDS,
        share: float = _SHARE,
        patience: float = _PATIENCE_SECONDS,
        idle: bool = True,
    ) -> None:
        self._uri, self._experiment, self._name, self._root = uri, experiment, name, root
        self._every, self._share, self._patience, self._idle = every, share, patience, idle
        self._points = Path()
        self._child: Child | None = None

    def start(self, points: Path) -> None:
        """Begin to send this file's lines; returns at once."""
        self._points = points
        paths = {"points": str(points.absolute()), "root": str(self._root.absolute())}
        how = {"every": self._every, "share": self._share, "patience": self._patience}
        request = Request(self._uri, self._experiment, self._name, **paths, **how)  # type: ignore[arg-type]
        environment = {**_MANNERS, **os.environ, "OMP_NUM_THREADS": "1"}
        self._child = Child("lexmill.tracking.live", request, env=environment)
        if self._idle:
            _stand_back(self._child.process.pid)  # while it still imports

    def close(self) -> None:
        """Let it send what is left, for some seconds at most, and say where that was not all."""
        if self._child is None:
            return
        self._child.close()
        try:  # what it was sending is looked up by whoever sends next
            code = self._child.process.wait(
                2 * self._patience + 5
            )  # it ends by itself, but a busy machine may not let it
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = _TOO_SLOW
        self._child = None
        training = training_of(self._points)
        failure = Cursor.read(self._points, training).failure if training else ""
        if code == _TOO_SLOW:
            failure = failure or "it takes too long"
        elif code:
            failure = failure or f"the sending process ended with {code}"
        if failure:
            progress.say(f"{self._name}: not all points are in MLflow ({failure}); `lexmill sync` sends the rest")


def sender_of(execution: Execution, experiment: str, name: str) -> LiveSender | None:
    """Who sends a training's points; None where nothing is to be published, or MLflow is not installed."""
    if not execution.publish or find_spec("mlflow") is None:
        return None
    return LiveSender(execution.tracking_uri, experiment, name)


def main() -> None:
    """The sending process: until its standard input ends, then once more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training, whose end is ours
    request = Request(**json.loads(sys.stdin.readline()))
    over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(over, request.patience), daemon=True).start()
    with locked(lock_of(Path(request.points))):  # one that outlives its killed training may still be at it
        _serve(request, over)


def _stand_back(process: int) -> None:
    """Give it only what no other process wants of the processor."""
    with contextlib.suppress(OSError):  # it has ended already
        if hasattr(os, "sched_setscheduler"):
            os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
        else:
            os.setpriority(os.PRIO_PROCESS, process, 19)


def _wait_for_end(over: threading.Event, patience: float) -> None:
    """The training has ended when it holds our standard input no more, also by kill -9; so do we, soon."""
    sys.stdin.read()
    over.set()
    time.sleep(patience)
    os._exit(_TOO_SLOW)


def _serve(request: Request, over: threading.Event) -> None:
    """Send what comes until it is over; a failure is noted, and tried again with growing pauses."""
    pause = request.every
    while True:
        ending = over.is_set()
        try:
            _deliver(request, over)
            return
        except Exception as error:
            # Whatever it is (an outage, a refusal, an answer that makes no sense), the training must not feel it.
            _note(Path(request.points), error)
        if ending:
            return
        over.wait(pause)
        pause = min(_MOST_SECONDS, 2 * pause)


def _deliver(request: Request, over: threading.Event) -> None:
    root = Path(request.root)
    with opened(request.uri, root) as client:
        experiment = experiment_id(client, request.experiment, sqlite_path(request.uri, root))
        delivery = Delivery(client, experiment, Path(request.points), request.name)
        delivery.begin()
        _adopt(client, experiment, delivery.run_id, root)
        while True:
            ending, begun = over.is_set(), time.process_time()
            delivery.send()
            if ending:
                delivery.end()
                return
            over.wait(pause_after(time.process_time() - begun, request.every, request.share))


def pause_after(spent: float, every: float, share: float) -> float:
    """Seconds until the next call, after one that took `spent` seconds of a processor; a minute at most."""
    return max(every, min(_MOST_SECONDS, spent / share))


def _adopt(client: MlflowClient, experiment: str, run_id: str, root: Path) -> None:
    """Make the run a child of the pipeline run that trains it, where there is one."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    record = runs.file_of(token, root) if token else None
    if record is not None:
        client.set_tag(run_id, PARENT, runs.parent(client, experiment, record))


def _note(points: Path, error: Exception) -> None:
    training = training_of(points)
    if training is not None:
        cursor = Cursor.read(points, training)
        cursor.failure = " ".join(str(error).split())[:300] or type(error).__name__
        cursor.write(points)


if __name__ == "__main__":
    main()
