"""`lexmill run`, and the end of every run: publish the models, show the results (`lexmill results`)."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import EXIT_BUG, EXIT_DONE, EXIT_RETRY, EXIT_USER, RetryableError, UserError
from lexmill.base.progress import bar, say
from lexmill.base.shown import print_line, print_table
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

__all__ = ["finish", "open_run", "preflight", "publish", "run", "run_in_worktree", "run_nothing", "show_reasons"]

_SHOWN_REASONS = 4


def run(targets: Sequence[str], jobs: int) -> int:
    """Run what changed under the workspace's lock, publish, show the results; return the exit code.

    Raises:
        UserErrors: all errors in params.yaml and the execution settings.
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
        if farewell := worktree.farewell(session.root):
            session.display.note(farewell)
        return session.code


def run_in_worktree(name: str, arguments: Sequence[str], *, take_params: bool) -> NoReturn:
    """Replace this process by the `lexmill run` of a worktree (`lexmill run --worktree NAME`).

    Args:
        name: of the worktree.
        arguments: of its `lexmill run`.
        take_params: whether to copy the present params.yaml.

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
    """Open a session of this workspace; corpora of the user's own files that changed are fetched again."""
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
        """Mark the run as ended in MLflow; the next run sends its record."""
        assert session is not None
        assert session.record is not None
        if tracked(settings) and not closing.finish(session.record.path):
            session.display.note("MLflow shows this run as running until the next run or `lexmill sync`")

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
    """Finish at once if nothing changed; return False if there is something to run."""
    with open_run(targets, jobs) as session:
        if session.plan.todo:
            return False
        _nothing(session)
        finish(session.root, session.display)
        return True


def _nothing(session: Session) -> None:
    session.display.note(f"{session.plan.unchanged} stages unchanged, nothing to run")


def _summary(session: Session) -> None:
    counts = Counter(str(outcome.state) for outcome in session.outcomes.values())
    counts |= Counter({"unchanged": counts["unchanged"] + session.plan.unchanged, "not run": len(session.not_run)})
    session.display.note("stages: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    if session.not_run:
        session.display.note(f"not run: {', '.join(session.not_run)}")


def finish(root: Path, display: Display, *, approve: Callable[[Proposal], bool] | None = None) -> str:
    """Publish the packages if the execution settings say so, show the results and return them as a Markdown table.

    A tracking server that is down does not fail the run: this is reported, and `lexmill publish` sends the rest later.

    Args:
        approve: called before a champion is replaced; None: replace it.
    """
    choices = params.load(root / "params.yaml")
    settings = execution.load_execution(root)
    packaged = any((root / layout.package(name)).is_dir() for name in choices.models)
    answers = True
    if settings.publish and packaged:
        from lexmill.registry.publish import publish_all

        try:
            with publishing(root), bar("publish the models"):
                publish_all(choices, settings, display.note, root, approve=approve)
        except RetryableError as error:
            display.note(f"not published: {error}")
            answers = False  # to send the rest would wait as long again; `lexmill publish` sends it too
    if answers:
        send_after_run(choices, settings, display.note, root)
    rows = results.collect(choices, root)
    if not rows:
        return ""
    show_results(rows, choices.experiment)
    display.note(where_to_look(root))
    return results.markdown(rows)


def where_to_look(root: Path) -> str:
    """Return where the report and the pages are; a run of some stages may not have made the report."""
    page = layout.REPORTS / "index.html"
    made = str(page) if (root / page).exists() else "not made yet; `lexmill run report` makes it"
    return f"the report: {made}; the pages: make ui"


def publish() -> None:
    """Register the packages (`lexmill publish`).

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
    """Print the table on standard output, and a sentence if some metrics are stale."""
    print_table(results.table(rows, f"results of '{experiment}' on the test sets"))
    if note := results.stale_note(rows):
        print_line(note)


def print_results(as_json: bool) -> None:
    """Print the results of the workspace as a table or as JSON (`lexmill results`).

    Raises:
        UserError: no model was evaluated yet.
    """
    choices = params.load()
    rows = results.collect(choices)
    if not rows:
        raise UserError("no model was evaluated yet; `lexmill run` does it")
    if as_json:
        sys.stdout.write(results.to_json(rows, choices.experiment))
    else:
        show_results(rows, choices.experiment)
    if absent := results.missing(choices):
        print_line(f"not evaluated yet: {', '.join(absent)}", file=sys.stderr)


def show_reasons(targets: Sequence[str]) -> None:
    """Print what would run and why, without running it (`lexmill run --why`)."""
    preflight()
    print_line(reasons_text(read(targets=targets, also=changed_files(params.load(), Path.cwd()))))


def reasons_text(plan: Plan) -> str:
    """Return one line a stage to run with its first reasons, then the number of unchanged stages."""
    lines = []
    for name, reasons in plan.reasons().items():
        more = f"; {len(reasons) - _SHOWN_REASONS} more" if len(reasons) > _SHOWN_REASONS else ""
        lines.append(f"{name}: {'; '.join(reasons[:_SHOWN_REASONS])}{more}")
    lines.append(f"{len(plan.todo)} stages to run, {plan.unchanged} unchanged")
    return "\n".join(lines)
