"""A cancel from the page, seen by the run itself.

Prefect's own runner and workers end a run that they started; nobody does that for `python -m flows run`, and
a lost connection delays the others. So each run looks at its own state, ends its stages in order, kills after a
few seconds what has not ended, then dvc too if that does not end by itself, and at last interrupts whatever else
keeps the run (an upload, a question). `BOUND_SECONDS` is the sum of what these steps wait.
Cost: one small request every two seconds.
"""

from __future__ import annotations

import os
import signal
import threading
from types import TracebackType
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
_TIDY_SECONDS = 2.0  # dvc puts its lock files in order when its stage has been killed
_STRIKE_SECONDS = 0.5
# From the cancel until nothing is waited for any more; ten seconds are promised, the rest is for the work itself.
BOUND_SECONDS = LOOK_SECONDS + ORDERLY_SECONDS + _TIDY_SECONDS + _STRIKE_SECONDS


class CancelWatch:
    """For the length of a flow's block: a cancel stops the session.

    `seen` tells that the run is being cancelled; `struck` that its main thread had to be interrupted, by a SIGTERM.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def over(self, session: Session) -> None:
        """What a cancel stops; at once, when it has been seen already."""
        with self._lock:
            self._session = session
        if self.seen:
            self._ask()

    def look(self) -> bool:
        """Ask the server now; whether the run is being cancelled."""
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(self._flow_run).state
        self.seen = self.seen or _cancels(state)
        return self.seen

    def cancelled(self) -> bool:
        """Whether the run is being cancelled, by a last look; a server that is away has cancelled nothing."""
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
                continue  # the server is away; the run goes on, and is looked for again

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
            session.display.note("cancelled from the Prefect page: what runs is asked to end")
            session.stop.request(EXIT_TERMINATED)


def _cancels(state: State | None) -> bool:
    return state is not None and (state.is_cancelling() or state.is_cancelled())
