"""Run a stage in a thread, so that the main thread sees signals and can watch; say why one failed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lexmill.base.errors import EXIT_RETRY, EXIT_USER, LexmillError, RetryableError
from lexmill.runner.display import Display
from lexmill.runner.supervised import Listener, Outcome, Stop

_WATCH_SECONDS = 0.3

Run = Callable[[str, Stop, Listener], Outcome]


def run_watched(
    stage: str, run: Run, stop: Stop, display: Display, watch: Callable[[], None] = lambda: None
) -> Outcome:
    """Run a stage to its end and show it; call `watch` several times a second meanwhile."""
    listener = Listener(
        line=lambda _: None,
        record=lambda data: display.record(stage, data),
        said=lambda text: display.said(stage, text),
    )
    found: list[Outcome | BaseException] = []

    def work() -> None:
        try:
            found.append(run(stage, stop, listener))
        except BaseException as error:
            found.append(error)

    display.started(stage)
    thread = threading.Thread(target=work, name=stage, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_WATCH_SECONDS)
        watch()
    outcome = found[0]
    if isinstance(outcome, BaseException):
        raise outcome
    display.ended(outcome)
    return outcome


def why_failed(outcome: Outcome) -> str:
    """Return why a stage failed by its settings: it diverged, or memory ran out.

    Raises:
        RetryableError: it failed for a passing reason.
        LexmillError: it failed by a bug.
    """
    if outcome.code == EXIT_RETRY:
        raise RetryableError(f"{outcome.message}\nthe same command resumes this trial")
    if outcome.code != EXIT_USER and not outcome.message.startswith("killed"):
        raise LexmillError(f"the training failed: {outcome.message}")
    return outcome.message
