"""`lexmill run`, and what every door does at the end of a run: publish the models, show the results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import EXIT_BUG, EXIT_DONE, EXIT_RETRY, EXIT_USER, RetryableError
from lexmill.base.progress import bar, say
from lexmill.base.workspace import only_one, publishing, run_lock
from lexmill.commands.sync import send, send_after_run, tracked
from lexmill.compute import execution
from lexmill.corpora.fetching import pins
from lexmill.report import results
from lexmill.runner import worktree
from lexmill.runner.display import Display
from lexmill.runner.graph import Plan, read
from lexmill.runner.record import Door
from lexmill.runner.session import Session, open_session, run_all
from lexmill.runner.sources import changed_files, changed_since_pinned
from lexmill.stages.entry import preflight
from lexmill.tracking.closing import Closing

if TYPE_CHECKING:
    from lexmill.registry.publish import Proposal

__all__ = ["finish", "open_run", "preflight", "publish", "run", "run_beside", "run_nothing", "show_reasons"]

_SHOWN_REASONS = 4


def run(targets: Sequence[str], jobs: int) -> int:
    """Run what changed under the workspace's lock, publish, show the results; gives the exit code.

    Raises:
        UserErrors: params.yaml or the execution settings have faults (all of them).
        RetryableError: another run holds the workspace.
    """
    preflight()
    with open_run(targets, jobs) as session:
        if session.plan.todo:
            run_all(session)
            _summary(session)
        else:
            _nothing(session)
        session.end()
        if session.code == EXIT_DONE:
            finish(session.root, session.display)
        if told := worktree.farewell(session.root):
            session.display.note(told)
        return session.code


def run_beside(name: str, arguments: Sequence[str], *, take_params: bool) -> NoReturn:
    """`lexmill run --worktree NAME`: become the run of a worktree, beside whatever runs here.

    Args:
        name: of the worktree.
        arguments: of its `lexmill run`.
        take_params: bring the present params.yaml along.

    Raises:
        UserError: the worktree cannot be made.
    """
    root = Path.cwd()
    with only_one(f"worktree-{name}", root):
        folder = worktree.prepare(name, root, say, take_params=take_params)
    command, environment = worktree.command_in(folder, root, list(arguments))
    os.chdir(folder)
    os.execve(command[0], command, environment)


@contextmanager
def open_run(
    targets: Sequence[str], jobs: int, *, door: Door = "run", handle_signals: bool = True
) -> Iterator[Session]:
    """A session of this workspace in which corpora from the user's own files are fetched again when those changed."""
    choices = params.load()
    pins.complete(choices)
    also = changed_files(choices, Path.cwd())
    settings = execution.load_execution()
    closing = Closing(settings.tracking_uri, Path.cwd())
    session = None

    def get_ready(_code: int) -> None:
        if session is not None and session.record is not None and tracked(settings):
            closing.start(session.record.path)

    def close() -> None:
        """For a run that is to end soon: the next one sends what it did."""
        assert session is not None
        assert session.record is not None
        if tracked(settings) and not closing.finish(session.record.path):
            session.display.note("MLflow shows this run as running until the next one, or `lexmill sync`, tells it")

    try:
        with open_session(
            targets,
            jobs=jobs,
            handle_signals=handle_signals,
            also=also,
            door=door,
            experiment=choices.experiment,
            settings=settings,
        ) as session:
            session.stop.attach(get_ready)
            for line in changed_since_pinned(choices, session.root):
                session.display.note(line)
            yield session
    finally:
        if session is not None and session.record is not None:
            if session.code in (EXIT_BUG, EXIT_USER, EXIT_RETRY):
                try:
                    send_after_run(choices, settings, session.display.note, session.root)
                except BaseException:  # Ctrl-C, SIGTERM
                    close()
                    raise
            elif session.code != EXIT_DONE:
                close()


def run_nothing(targets: Sequence[str], jobs: int) -> bool:
    """Finish at once where nothing changed; False where there is something to run."""
    with open_run(targets, jobs) as session:
        if session.plan.todo:
            return False
        _nothing(session)
        finish(session.root, session.display)
        return True


def _nothing(session: Session) -> None:
    session.display.note(f"{session.plan.unchanged} stages unchanged, nothing to run")


def _summary(session: Session) -> None:
    counts: dict[str, int] = {}
    for outcome in session.outcomes.values():
        counts[outcome.state] = counts.get(outcome.state, 0) + 1
    if session.plan.unchanged:
        counts["unchanged"] = counts.get("unchanged", 0) + session.plan.unchanged
    if session.not_run:
        counts["not run"] = len(session.not_run)
    session.display.note("stages: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    if session.not_run:
        session.display.note(f"not run: {', '.join(session.not_run)}")


def finish(root: Path, display: Display, *, approve: Callable[[Proposal], bool] | None = None) -> str:
    """Publish what is packaged (if the execution settings say so) and show the results.

    A tracking server that is down does not spoil the run: it is told, and `lexmill publish` sends the rest later.

    Args:
        approve: asked before a champion is replaced; None: nobody is asked.

    Returns:
        The results as a Markdown table; empty where there are none.
    """
    choices = params.load(root / "params.yaml")
    settings = execution.load_execution(root)
    packaged = any((root / layout.package(name)).is_dir() for name in choices.models)
    if settings.publish and packaged:
        from lexmill.registry.publish import publish_all

        try:
            with publishing(root), bar("publish the models"):
                publish_all(choices, settings, display.note, root, approve=approve)
        except RetryableError as error:
            display.note(f"not published: {error}")
    send_after_run(choices, settings, display.note, root)
    rows = results.collect(choices, root)
    if not rows:
        return ""
    show_results(rows, choices.experiment)
    display.note("the report: reports/index.html; the pages: make ui")
    return results.markdown(rows)


def publish() -> None:
    """`lexmill publish`: bring the packages into the registry.

    Raises:
        UserError: there is no package, or one was changed after it was made.
        RetryableError: the tracking server does not answer, or a run holds the workspace.
    """
    from lexmill.commands.experiments import publish_experiments
    from lexmill.registry.publish import publish_all

    preflight()
    with run_lock(), publishing():
        choices, settings = params.load(), execution.load_execution()
        publish_all(choices, settings, say, ".")
        send(choices, settings, say, Path())
        publish_experiments(settings, say, Path.cwd())


def show_results(rows: list[results.Row], experiment: str) -> None:
    """The table on standard output."""
    from rich.console import Console

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    console.print(results.table(rows, experiment))


def show_reasons(targets: Sequence[str]) -> None:
    """`lexmill run --why`: what would run and why, without running it."""
    preflight()
    plan = read(targets=targets, also=changed_files(params.load(), Path.cwd()))
    print(reasons_text(plan))


def reasons_text(plan: Plan) -> str:
    """One line a stage to run with its first reasons, then how many need nothing."""
    lines = []
    for name, reasons in plan.reasons().items():
        more = f"; {len(reasons) - _SHOWN_REASONS} more" if len(reasons) > _SHOWN_REASONS else ""
        lines.append(f"{name}: {'; '.join(reasons[:_SHOWN_REASONS])}{more}")
    lines.append(f"{len(plan.todo)} stages to run, {plan.unchanged} unchanged")
    return "\n".join(lines)
