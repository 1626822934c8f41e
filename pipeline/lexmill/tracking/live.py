"""Send the points of a running training to MLflow from a separate process, which runs only on an idle core.

MLflow takes seconds of CPU to import and tens of milliseconds per call, and torch waits for the slowest of its threads.
The file of points is the queue, so a failure here (an outage, a refusal, a hanging server, a kill) costs no step and
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
from lexmill.base.cutting import cut
from lexmill.base.workspace import TOKEN_VARIABLE
from lexmill.compute.execution import Execution
from lexmill.tracking import runs
from lexmill.tracking.child import Child
from lexmill.tracking.database import locked
from lexmill.tracking.finding import PARENT
from lexmill.tracking.points import Cursor, Delivery, lock_of, training_of
from lexmill.tracking.store import experiment_id, opened, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

_EVERY_SECONDS = 5.0
_SHARE = 0.0025
_TOO_SLOW = 75
_MOST_SECONDS = 60.0  # between two calls, also while the store fails
_PATIENCE_SECONDS = 10.0  # for calls in progress when the training ends
# One short try per call; the next one follows anyway.
_MANNERS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Request:
    """The request to the sending process, on its standard input since an address may hold a password."""

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
        name: of the model.
        every: least seconds between two calls.
        share: of a core, for calls in the long run; an expensive call delays the next.
        patience: seconds to wait at the end.
        idle: run only on an idle core.
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
        """Begin to send this file's lines; return at once."""
        self._points = points
        paths = {"points": str(points.absolute()), "root": str(self._root.absolute())}
        how = {"every": self._every, "share": self._share, "patience": self._patience}
        request = Request(self._uri, self._experiment, self._name, **paths, **how)  # type: ignore[arg-type]
        environment = {**_MANNERS, **os.environ, "OMP_NUM_THREADS": "1"}
        self._child = Child("lexmill.tracking.live", request, env=environment)
        if self._idle:
            _stand_back(self._child.process.pid)  # while it still imports

    def close(self) -> None:
        """Let it send the rest, for some seconds at most, and report an incomplete end."""
        if self._child is None:
            return
        self._child.close()
        try:  # it ends by itself, but perhaps late on a busy machine
            code = self._child.process.wait(2 * self._patience + 5)
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
    """Return the sender of a training's points; None if nothing is published or MLflow is not installed."""
    if not execution.publish or find_spec("mlflow") is None:
        return None
    return LiveSender(execution.tracking_uri, experiment, name)


def main() -> None:
    """Send until standard input ends, then once more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training
    request = Request(**json.loads(sys.stdin.readline()))
    over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(over, request.patience), daemon=True).start()
    with locked(lock_of(Path(request.points))):  # the sender of a killed training may still run
        _serve(request, over)


def _stand_back(process: int) -> None:
    """Run the process only on otherwise idle cores."""
    with contextlib.suppress(OSError):  # it has ended already
        if hasattr(os, "sched_setscheduler"):
            os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
        else:
            os.setpriority(os.PRIO_PROCESS, process, 19)


def _wait_for_end(over: threading.Event, patience: float) -> None:
    """End soon after the training, which closes our standard input even by kill -9."""
    sys.stdin.read()
    over.set()
    time.sleep(patience)
    os._exit(_TOO_SLOW)


def _serve(request: Request, over: threading.Event) -> None:
    """Send until the end; note a failure and try again with growing pauses."""
    pause = request.every
    while True:
        ending = over.is_set()
        try:
            _deliver(request, over)
            return
        except Exception as error:
            # No failure (outage, refusal, nonsense answer) may disturb the training.
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
    """Return seconds until the next call, after one of `spent` CPU seconds; a minute at most."""
    return max(every, min(_MOST_SECONDS, spent / share))


def _adopt(client: MlflowClient, experiment: str, run_id: str, root: Path) -> None:
    """Make the run a child of its pipeline run, if there is one."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    record = runs.file_of(token, root) if token else None
    if record is not None:
        client.set_tag(run_id, PARENT, runs.parent(client, experiment, record))


def _note(points: Path, error: Exception) -> None:
    training = training_of(points)
    if training is not None:
        cursor = Cursor.read(points, training)
        cursor.failure = cut(" ".join(str(error).split()), 300) or type(error).__name__
        cursor.write(points)


if __name__ == "__main__":
    main()
