"""Let a run see its own cancellation on the page.

Prefect's runner and workers end only the runs that they started, not `python -m flows run`, and late after a lost
connection. So each run polls its own state, ends its stages in order, kills the rest after a few seconds, then dvc if
need be, and at last interrupts the main thread (an upload, a question). `BOUND_SECONDS` is the sum of these waits.
Cost: one small request every two seconds.
"""

from __future__ import annotations

import os
import signal
import threading
from uuid import UUID

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State

from lexmill.base.errors import EXIT_TERMINATED
from lexmill.runner.ending import kill_stages
from lexmill.runner.session import Session

LOOK_SECONDS = 2.0
ORDERLY_SECONDS = 4.0  # a training writes a checkpoint in this time, or resumes from its last one
_KILL_SECONDS = 0.2
_TIDY_SECONDS = 2.0  # dvc writes its lock files after its stage was killed
_STRIKE_SECONDS = 0.5
# From the cancel to the end of all waits; ten seconds are promised, the rest is for the work itself.
BOUND_SECONDS = LOOK_SECONDS + ORDERLY_SECONDS + _TIDY_SECONDS + _STRIKE_SECONDS


class CancelWatch:
    """Stops the session of a flow when the run is cancelled.

    `seen`: the run is being cancelled; `struck`: its main thread was interrupted by SIGTERM.
    """

    def __init__(self, flow_run: UUID) -> None:
        self.seen = False
        self.struck = False
        self._flow_run = flow_run
        self._ended = threading.Event()
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="watch-cancel", daemon=True)

    def __enter__(self) -> CancelWatch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()

    def over(self, session: Session) -> None:
        """Set the session that a cancel stops; stop it at once if the cancel was seen already."""
        with self._lock:
            self._session = session
        if self.seen:
            self._ask()

    def look(self) -> bool:
        """Ask the server now; return whether the run is being cancelled."""
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(self._flow_run).state
        self.seen = self.seen or _cancels(state)
        return self.seen

    def cancelled(self) -> bool:
        """Check once more whether the run is being cancelled; False where the server is away."""
        try:
            return self.seen or self.look()
        except HTTPError:
            return False

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                if self.look():
                    self._stop()
                    return
            except HTTPError:
                continue  # the server is away; ask again later

    def _stop(self) -> None:
        self._ask()
        if self._ended.wait(ORDERLY_SECONDS):
            return
        for _ in range(round(_TIDY_SECONDS / _KILL_SECONDS)):
            kill_stages()
            if self._ended.wait(_KILL_SECONDS):
                return
        kill_stages(commands=True)
        if self._ended.wait(_STRIKE_SECONDS):
            return
        self.struck = True
        os.kill(os.getpid(), signal.SIGTERM)  # Prefect turns it into an exception in the flow

    def _ask(self) -> None:
        with self._lock:
            session = self._session
        if session is not None and session.stop.code is None:
            session.display.note("cancelled from the Prefect page: waiting for what runs to end")
            session.stop.request(EXIT_TERMINATED)


def _cancels(state: State | None) -> bool:
    return state is not None and (state.is_cancelling() or state.is_cancelled())
