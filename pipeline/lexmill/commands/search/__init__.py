"""`lexmill search NAME`: run or resume the search of conf/search/NAME.yaml, show the best trials, adopt the best."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from lexmill import params
from lexmill.base.errors import EXIT_DONE, LexmillError, UserError
from lexmill.base.progress import say, seconds_text
from lexmill.base.shown import print_line, print_table
from lexmill.base.workspace import run_lock
from lexmill.commands.run import open_run, preflight
from lexmill.commands.search import adopting, space, trials
from lexmill.commands.search.loop import Loop, Place, place
from lexmill.compute.execution import Execution, load_execution
from lexmill.runner.graph import read
from lexmill.runner.session import run_all

_SHOWN = 10


def search(name: str, wanted: int | None, *, take: bool) -> int:
    """Run trials until the wanted number is reached, then show the best; return the exit code.

    Args:
        name: of conf/search/.
        wanted: trials in all; None: as in the file.
        take: write the best as a choice of conf/.

    Raises:
        UserErrors: the search, params.yaml or the execution settings have errors.
        RetryableError: another run holds the workspace, or a training failed for a passing reason.
    """
    preflight()
    root = Path.cwd()
    chosen = space.load(name, root)
    if wanted is not None:
        chosen = dataclasses.replace(chosen, trials=wanted)
    about = space.target(chosen, params.load(), root)
    space.check(chosen, about, str(space.FOLDER / f"{name}.yaml"))
    settings = load_execution()
    code = _inputs(about)
    if code != EXIT_DONE:
        return code
    where = place(name, chosen, about, root)
    before = os.environ.get("LEXMILL_EXECUTION")
    sending = _Sending(settings, root)
    try:
        with run_lock(root=root):
            code = Loop(where, chosen, about, root, sending).run()
    finally:
        if before is None:
            os.environ.pop("LEXMILL_EXECUTION", None)
        else:
            os.environ["LEXMILL_EXECUTION"] = before
    if code != EXIT_DONE:
        say("the search was stopped; the same command resumes it")
        return code
    sending(where.folder)
    sending.report()
    _show(where, about, root, take=take)
    return EXIT_DONE


def _inputs(about: space.Target) -> int:
    """Bring the training's inputs up to date; return the exit code."""
    plan = read(targets=[about.stage])
    needs = next(stage.needs for stage in plan.stages if stage.name == about.stage)
    if not {stage.name for stage in plan.todo} - {about.stage}:
        return EXIT_DONE
    with open_run(needs, 2) as session:
        run_all(session)
        return session.code


class _Sending:
    """Sends ended trials to MLflow; a failure is reported once and does not stop the search."""

    def __init__(self, settings: Execution, root: Path) -> None:
        self._settings, self._root, self._failure = settings, root, ""

    def __call__(self, folder: Path) -> None:
        if not self._settings.publish:
            return
        from lexmill.tracking.searches import send

        try:
            send(self._settings.tracking_uri, folder, self._root)
        except LexmillError as error:
            failure = str(error)
        except Exception as error:  # an unexpected answer must not stop the search: the trials are on disk
            failure = f"{type(error).__name__}: {error}"
        else:
            self._failure = ""
            return
        if not self._failure:
            say(f"not in MLflow yet, the search goes on: {failure}")
        self._failure = failure

    def report(self) -> None:
        """Report trials that are still not sent."""
        if self._failure:
            say(f"not all trials are in MLflow ({self._failure}); the same command sends them")


def _show(where: Place, about: space.Target, root: Path, *, take: bool) -> None:
    ended = trials.read(where.folder)
    found = trials.best(ended)
    if found is None:
        raise UserError(f"none of {len(ended)} trials was completed; the last: {ended[-1].message or 'ended early'}")
    from rich.table import Table

    table = Table(title=f"search {where.name}: {about.path}, {len(ended)} trials")
    for head in ("trial", *found.values, "valid loss", "state", "time"):
        table.add_column(head, justify="right" if head in ("trial", "valid loss", "time") else "left")
    for one in trials.ranked(ended)[:_SHOWN]:
        loss = "" if one.valid_loss is None else f"{one.valid_loss:.5g}"
        state = f"pruned at validation {one.looks}" if one.state == "pruned" else one.state
        table.add_row(str(one.number), *map(str, one.values.values()), loss, state, seconds_text(one.seconds))
    print_table(table)
    if take:
        path, line = adopting.adopt(where.name, about, found.values, root)
        print_line(f"{path.relative_to(root)} written; to train with it and keep all else:")
    else:
        line = adopting.command(about, found.values, root)
        print_line(f"the best is trial {found.number}; to take it:")
    print_line(f"  {line}\nthen `lexmill run`: its training comes from the cache")
