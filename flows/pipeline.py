"""The pipeline as a Prefect flow: one task per stage of DVC's graph, with the same runner as `lexmill run`.

DVC is the cache: only changed stages and their dependents become tasks, and Prefect keeps no results. A stage that ends
with "try again" (75: no network, a busy server) is retried with growing pauses. The flow, `lexmill run` and `dvc repro`
give the same results and continue each other's work.
Cost: one server start (about 15 s) where none is configured; a no-op needs no server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from httpx import HTTPError
from prefect import Task, flow, get_run_logger, runtime
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext, TaskRunContext
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture, wait
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelled, Completed
from prefect.task_runners import ThreadPoolTaskRunner

from flows import pages
from flows.approval import Asking
from flows.cancelling import CancelWatch
from flows.lost import noted
from flows.turns import Turns
from lexmill.base.addresses import redact
from lexmill.base.errors import EXIT_DONE, EXIT_RETRY, LexmillError, RetryableError, Terminated
from lexmill.base.progress import line_text, say
from lexmill.commands import nightly as night
from lexmill.commands.run import finish, open_run, preflight
from lexmill.registry import decisions
from lexmill.runner.session import Session
from lexmill.runner.supervised import Outcome

RETRY_PAUSES = (10.0, 60.0, 300.0)  # seconds
_PROGRESS_SECONDS = 10.0
_DRAIN_SECONDS = 10
# DVC's advice after each stage, which the run follows by itself.
_ADVICE = re.compile(
    r"\s*(git add |dvc config core.autostage|To track the changes|To enable auto staging|Use `dvc push`|$)"
)
CANCELLED = "cancelled; the next run continues"
STOPPED_BEFORE = "the run was stopped before its turn came"
STOPPED_BETWEEN = "stopped while it waited for its next try"
WAITS = "waits for its turn: others hold the cores, the GPUs or the places of light stages"


class StageFailed(LexmillError):
    """A stage ended badly; carries its exit code."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message or f"{outcome.stage} ended with exit code {outcome.code}")
        self.exit_code = outcome.code


class RunFailed(LexmillError):
    """Ends the flow after a failed stage, which Prefect would leave pending; carries the run's exit code."""

    def __init__(self, session: Session) -> None:
        failed = [outcome.stage for outcome in session.outcomes.values() if outcome.code != EXIT_DONE]
        parts = [f"failed: {', '.join(failed)}" if failed else "stopped"]
        if session.not_run:
            parts.append(f"not run: {', '.join(session.not_run)}")
        super().__init__("; ".join(parts))
        self.exit_code = session.code


def _should_retry(_task: Any, _run: Any, state: Any) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, StageFailed) and error.exit_code == EXIT_RETRY


def _run_name() -> str:
    """Return the run's name on the page, which shows the time beside it."""
    parameters = runtime.flow_run.parameters
    what = ", ".join(parameters.get("targets") or ["all stages"])
    return f"nightly: {what}" if parameters.get("nightly") else what


@flow(
    name="lexmill",
    flow_run_name=_run_name,
    task_runner=ThreadPoolTaskRunner(max_workers=64),  # type: ignore[arg-type]
    persist_result=False,
)
def pipeline(
    targets: list[str] | None = None,
    jobs: int = 2,
    *,
    approve: bool = False,
    approval_hours: float = 12.0,
    nightly: bool = False,
    branch: str = night.BRANCH,
    push: str | None = None,
) -> State[None] | None:
    """Run what changed, publish the models, show the results; nightly: check the sources before, commit after.

    Args:
        targets: stages or groups of stages; they and what they need. None: all.
        jobs: light stages side by side; trainings run alone.
        approve: pause for a person's word before a new version replaces a champion.
        approval_hours: how long to wait for it; then the champion stays.
        nightly: check the moving sources before the run, and commit its results after it.
        branch: where a nightly run commits.
        push: the git remote that it pushes the branch to; None: none.
    """
    context = FlowRunContext.get()
    assert context is not None
    flow_run = context.flow_run
    assert flow_run is not None
    with CancelWatch(flow_run.id) as watch:

        def stages() -> State[None] | None:
            # Signals stay Prefect's: when its runner cancels, an exception here ends the tree below.
            with open_run(targets or (), jobs, door="flow", handle_signals=False) as session:
                watch.over(session)
                with noted(session.root, flow_run.id):
                    return _run(session, Asking(session, approval_hours * 3600) if approve else None)

        try:
            preflight()
            state = _night(stages, branch, push) if nightly else stages()
        except TerminationSignal:
            if not watch.struck:
                raise
        except (RunFailed, Terminated):
            if not watch.cancelled():
                raise
        return Cancelled(message=CANCELLED) if watch.cancelled() else state


def _night(stages: Callable[[], State[None] | None], branch: str, push: str | None) -> State[None] | None:
    """Run `lexmill nightly` with this flow as its run, and show its messages on the page."""
    ended: list[State[None] | None] = []
    said: list[str] = []

    def run() -> int:
        ended.append(stages())
        return EXIT_DONE  # what is worse has raised

    def tell(text: str) -> None:
        said.append(text)
        get_run_logger().info("%s", text)
        say(text)

    try:
        night.nightly(branch=branch, push=push, run=run, say=tell)
    finally:
        pages.show_night(said)
    return ended[0]


def _run(session: Session, asking: Asking | None) -> State[None] | None:
    """Run the session's stages as tasks, then publish, then show the pages."""
    logger = get_run_logger()
    logger.info("%d stages to run, %d unchanged", len(session.plan.todo), session.plan.unchanged)
    if session.plan.todo:
        with pages.ProgressBoard() as board:
            wait(list(_submit(session, board).values()))
        pages.show_stages(session)
    session.end()
    if session.code != EXIT_DONE:
        raise RunFailed(session)
    before = decisions.rows(session.root)
    text = finish(session.root, session.display, approve=asking)
    if not session.plan.todo and decisions.rows(session.root) == before:
        said = f"{session.plan.unchanged} stages unchanged, nothing to run"
        pages.show_skipped(said)
        return Completed(name="Skipped", message=said)
    if text:
        pages.show_results(text)
    pages.show_decisions(session.root)
    pages.show_links(session.root)
    return None


def run_now(parameters: dict[str, Any]) -> None:
    """Run the flow with these parameters of `pipeline`, and send its logs before the server may end.

    Raises:
        RunFailed: a stage failed; carries the exit code.
        Terminated: it was cancelled from the page.
        RetryableError: Prefect's server has failed.
    """
    try:
        state = pipeline(**parameters, return_state=True)
    except (HTTPError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "reach API" not in str(error):
            raise
        said = str(error).partition("\n")[0] or type(error).__name__
        raise RetryableError(
            f"the Prefect server {redact(str(PREFECT_API_URL.value()))} has failed ({said}); what is done is kept, and"
            " the next run continues"
        ) from error
    except BaseException:
        APILogWorker.drain_all(timeout=_DRAIN_SECONDS)
        raise
    APILogWorker.drain_all(timeout=_DRAIN_SECONDS)
    if state.is_cancelled():
        raise Terminated(f"cancelled from the Prefect page: {CANCELLED}")
    state.result()


def _submit(session: Session, board: pages.ProgressBoard) -> dict[str, PrefectFuture[None]]:
    """Submit a task for each stage to run, after those it needs, so that the page shows DVC's graph."""
    futures: dict[str, PrefectFuture[None]] = {}
    reasons = session.plan.reasons()
    for stage in session.plan.todo:
        run: Task[[], None] = Task(
            _stage_work(session, board, stage.name, "; ".join(reasons[stage.name])),
            name=stage.name.partition("@")[0],
            task_run_name=stage.name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=len(RETRY_PAUSES),
            retry_condition_fn=_should_retry,
        )
        futures[stage.name] = run.submit(
            wait_for=[futures[name] for name in stage.needs if name in futures], return_state=False
        )
    return futures


def _stage_work(session: Session, board: pages.ProgressBoard, stage: str, why: str) -> Any:
    """Return the body of a stage's task: output goes to the task's log, progress to the board."""
    pauses = iter(RETRY_PAUSES)

    def work() -> State[None] | None:
        logger = get_run_logger()
        logger.info("why: %s", why)
        context = TaskRunContext.get()
        assert context is not None
        task_run, start = context.task_run, time.monotonic()
        assert task_run.flow_run_id is not None
        flow_run = task_run.flow_run_id
        last = start
        turns = Turns(task_run)

        def turn(begins: bool) -> None:
            nonlocal start, last
            if begins:
                start = last = time.monotonic()
                turns.begin()
            else:
                logger.info(WAITS)
                turns.wait(WAITS)

        def record(data: dict[str, Any]) -> None:
            nonlocal last
            now = time.monotonic()
            board.record(stage, data, task_run=task_run.id, flow_run=flow_run, seconds=now - start)
            if now - last >= _PROGRESS_SECONDS:
                last = now
                text = line_text(data["description"], data["done"], data["total"], data["shown"], now - start)
                logger.info("%s", text)

        def line(text: str) -> None:
            if not _ADVICE.match(text):
                logger.info("%s", text)

        outcome = session.run(stage, line=line, record=record, turn=turn)
        board.end(outcome)
        if outcome.code == EXIT_DONE:
            return None
        if outcome.state == "stopped":
            never = STOPPED_BEFORE if task_run.run_count == 1 else STOPPED_BETWEEN
            return Cancelled(message="stopped" if outcome.seconds else never)
        if outcome.code == EXIT_RETRY and (pause := next(pauses, None)) is not None:
            # Prefect's own pause cannot be interrupted.
            again = f"trying again in {pause:.0f} s"
            session.display.note(f"{stage}: {again}")
            turns.wait(again)
            if session.stop.wait(pause):
                return Cancelled(message=STOPPED_BETWEEN)
        raise StageFailed(outcome)

    return work
