"""A run of a workspace, for `lexmill run` and the Prefect flow: lock, plan, slots, display, orderly end.

with open_session(targets, jobs=2) as session:
    outcomes = run_all(session)          # or: session.run(name) from a task for each stage of session.plan.todo
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

from lexmill.base import workspace
from lexmill.base.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_RETRY, EXIT_TERMINATED, EXIT_USER
from lexmill.compute.execution import Execution
from lexmill.runner import graph
from lexmill.runner.display import Display
from lexmill.runner.record import Door, RunRecord, unfinished, why
from lexmill.runner.slots import Slots
from lexmill.runner.supervised import Listener, Outcome, Stop, run_stage

_POLL_SECONDS = 0.2


def _ignore(_: Any) -> None:
    return


@dataclass
class Session:
    """A held workspace with its plan; `run` may be called from several threads, once a stage."""

    root: Path
    plan: graph.Plan
    lock: workspace.RunLock
    slots: Slots
    display: Display
    stop: Stop = field(default_factory=Stop)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    door: Door = "run"
    experiment: str = ""
    record: RunRecord | None = None
    _recording: threading.Lock = field(default_factory=threading.Lock)
    _why: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        stage: str,
        line: Callable[[str], None] = _ignore,
        record: Callable[[dict[str, Any]], None] = _ignore,
        turn: Callable[[bool], None] = _ignore,
    ) -> Outcome:
        """Run one stage when its turn comes.

        Args:
            line: called with each line that the stage prints.
            record: called with the stage's progress, up to four times a second.
            turn: called with False where the stage has to wait for its place, True when it begins.
        """
        with self.slots.take(stage, lambda: turn(False)) as admitted:
            if not admitted:
                never = Outcome(stage, "stopped", self.stop.code or EXIT_TERMINATED, 0.0)
                self.outcomes.setdefault(stage, never)  # keep an earlier try
                return never
            turn(True)
            self._begin(stage)
            self.display.started(stage)

            def on_record(data: dict[str, Any]) -> None:
                self.display.record(stage, data)
                record(data)

            listener = Listener(line=line, record=on_record, said=lambda text: self.display.said(stage, text))
            force = any(one.forced for one in self.plan.stages if one.name == stage)
            outcome = run_stage(stage, self.root, self.lock, self.stop, listener, force=force)
            self.display.ended(outcome)
        return self._keep(outcome)

    def _keep(self, outcome: Outcome) -> Outcome:
        self.outcomes[outcome.stage] = outcome
        if self.record is not None:
            self.record.stage(outcome)
        return outcome

    def _begin(self, stage: str) -> None:
        """Record the start of a stage; the first one begins the record of the run."""
        with self._recording:
            if self.record is None:
                lock, about = self.lock, self.experiment
                self.record = RunRecord.start(self.root, lock.token, lock.what, self.door, self.plan, experiment=about)
                self._why = why(self.plan)
        self.record.begin(stage, self._why.get(stage, ""))

    def end(self) -> None:
        """Close the record, once, after the stages and before publishing."""
        if self.record is not None:
            self.record.end(self.code)

    @property
    def not_run(self) -> list[str]:
        """Return the stages of the plan that never started, because of a failure or a stop."""
        started = {name for name, outcome in self.outcomes.items() if outcome.state != "stopped" or outcome.seconds}
        return [stage.name for stage in self.plan.todo if stage.name not in started]

    @property
    def code(self) -> int:
        """Return the exit code: 0, that of the stop, or the worst of the failures (a bug, wrong input, retry)."""
        if self.stop.code is not None:
            return self.stop.code
        codes = {outcome.code for outcome in self.outcomes.values()} - {EXIT_DONE}
        for grave in (1, EXIT_USER, EXIT_RETRY):
            if grave in codes:
                return grave
        return max(codes, default=EXIT_DONE)


@contextmanager
def open_session(
    targets: Sequence[str] = (),
    *,
    root: str | Path = ".",
    jobs: int = 2,
    display: Display | None = None,
    handle_signals: bool = True,
    also: Mapping[str, str] = MappingProxyType({}),
    door: Door = "run",
    experiment: str = "",
    settings: Execution | None = None,
) -> Iterator[Session]:
    """Hold the workspace, read its plan, and end what runs in order at Ctrl-C or SIGTERM.

    Args:
        targets: stages or groups of stages; they and what they need. Empty: all.
        jobs: light stages side by side.
        handle_signals: turn SIGINT and SIGTERM into an orderly end; else only an exception in the block does.
        also: stages with a change that DVC does not see, and the change.
        door: how it was started.
        experiment: the MLflow experiment of its record.
        settings: where stages run, and with what; None: all of them here.

    Raises:
        RetryableError: another run holds the workspace.
        UserError: the graph cannot be read.
    """
    root = Path(root).resolve()
    with workspace.run_lock(root=root) as lock:
        display = display or Display()
        for killed in unfinished(root):
            killed.end(None)
            display.note(f"'{killed.what}' of {killed.started} was killed; its record is closed; this run continues it")
        plan = graph.read(root, targets, also)
        session = Session(root, plan, lock, Slots(jobs, settings), display, door=door, experiment=experiment)
        session.stop.attach(lambda _code: session.slots.close())
        try:
            with stopping(session.stop, session.display) if handle_signals else nullcontext():
                yield session
        except BaseException as error:
            session.stop.request(EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_TERMINATED)
            session.slots.wait_empty()
            raise
        finally:
            session.end()


@contextmanager
def stopping(stop: Stop, display: Display) -> Iterator[None]:
    """Turn SIGINT and SIGTERM into requests to stop, in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        # In a thread: the handler may have interrupted a holder of the locks taken there.
        code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_TERMINATED
        threading.Thread(target=_request, args=(stop, display, code), daemon=True).start()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _request(stop: Stop, display: Display, code: int) -> None:
    first = stop.code is None
    stop.request(code)
    if first:
        display.note("stopping: waiting for what runs to end; the next run continues")


def run_all(session: Session) -> list[Outcome]:
    """Run the plan: each stage after those it needs; dependents of a failed stage are skipped, the others finish."""
    needs = {stage.name: set(stage.needs) for stage in session.plan.todo}
    waiting = {name: needed & set(needs) for name, needed in needs.items()}
    ended: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()

    def work(name: str) -> None:
        try:
            ended.put(session.run(name))
        except BaseException as error:
            ended.put(error)

    running = 0
    while True:
        for name in [name for name, needed in waiting.items() if not needed]:
            del waiting[name]
            threading.Thread(target=work, args=(name,), name=name, daemon=True).start()
            running += 1
        if running == 0:
            return list(session.outcomes.values())
        try:
            outcome = ended.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            continue  # wake up, so that the main thread sees signals
        running -= 1
        if isinstance(outcome, BaseException):
            session.stop.request(EXIT_TERMINATED)
            raise outcome
        if outcome.code == EXIT_DONE:
            for needed in waiting.values():
                needed.discard(outcome.stage)
