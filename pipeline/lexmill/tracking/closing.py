"""Close the MLflow runs that a stopped pipeline run left open, where the store answers promptly.

A stopped run should end soon, so the next one or `lexmill sync` sends its results. Until then its parent run, and the
run of a killed training, would be shown as running. They are closed here, two calls each, by a separate process: MLflow
takes seconds to import, and a server may hang. It starts while the stages end, and is killed after a short wait.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lexmill.tracking import runs
from lexmill.tracking.child import Child
from lexmill.tracking.finding import no_repeats
from lexmill.tracking.points import Cursor, file_of, training_of
from lexmill.tracking.spool import unless_sending
from lexmill.tracking.store import opened

if TYPE_CHECKING:
    from mlflow import MlflowClient

_MOST_SECONDS = 3.0  # more at the end of a run that is being stopped
_CLOSE = "close"


@dataclass(frozen=True)
class Request:
    """The request to the closing process, on its standard input since an address may hold a password."""

    uri: str
    root: str
    record: str


class Closing:
    """Closes what one stopped run of the workspace `root` left open in the store `uri`."""

    def __init__(self, uri: str, root: Path) -> None:
        self._uri, self._root = uri, root
        self._child: Child | None = None
        self._lock = threading.Lock()
        self._over = False

    def start(self, record: Path) -> None:
        """Get ready, once, if the store knows of the run; return at once. `finish` reports a failed start."""
        with self._lock, contextlib.suppress(OSError):
            if self._over or self._child is not None or not _open_runs(record):
                return
            request = Request(self._uri, str(self._root.absolute()), str(record.absolute()))
            # In a session of its own: a second Ctrl-C is not for it.
            self._child = Child("lexmill.tracking.closing", request, start_new_session=True)

    def finish(self, record: Path) -> bool:
        """Close what the ended run left open; return whether that was done in time."""
        self.start(record)
        with self._lock:
            child, self._over = self._child, True
        if child is None:
            return not _open_runs(record)
        try:
            if not _open_runs(record):  # the stages have closed theirs, and there is no parent
                return True
            child.tell(_CLOSE)
            return child.process.wait(_MOST_SECONDS) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            child.kill()


@dataclass(frozen=True)
class _Open:
    """A run shown as running: its id, its exit code, and the points of a training."""

    run_id: str
    code: int | None
    points: Path | None = None


def close(client: MlflowClient, path: Path) -> None:
    """End the parent run of an ended record, and its trainings' runs without a sender."""
    record = runs.read(path)
    assert record is not None
    for left in _open_runs(path):
        with nullcontext(True) if left.points is None else unless_sending(left.points) as free:
            if free and client.get_run(left.run_id).info.status == "RUNNING":
                client.set_terminated(left.run_id, runs.status_of(left.code), runs.ended(record))


def _open_runs(path: Path) -> list[_Open]:
    """Return what a run may have left open, from files alone: its parent, then failed trainings."""
    record = runs.read(path)
    if record is None:
        return []
    cursor = runs.RunCursor.read(path, record["token"])
    found = [_Open(cursor.parent, record["code"])] if cursor.parent and not cursor.done else []
    for stage in record["stages"]:
        if not runs.is_training(stage) or stage["state"] not in ("running", "stopped", "failed"):
            continue
        group, _, key = stage["name"].rpartition(":")[2].partition("@")
        points = file_of(group, key, path.parent.parent.parent)
        try:
            training = training_of(points)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # corrupted by a power loss: `lexmill sync` reports it
        sent = Cursor.read(points, training) if training else Cursor("")
        if sent.run_id and not sent.closed:
            found.append(_Open(sent.run_id, stage["code"], points))
    return found


def main() -> None:
    """Get ready, wait for the request to close, and close; exit when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = Request(**json.loads(sys.stdin.readline()))
    word = threading.Event()
    threading.Thread(target=_listen, args=(word,), daemon=True).start()
    with opened(request.uri, Path(request.root)) as client, no_repeats():
        word.wait()
        close(client, Path(request.record))


def _listen(word: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == _CLOSE:
            word.set()
    os._exit(1)  # the run is gone


if __name__ == "__main__":
    main()
