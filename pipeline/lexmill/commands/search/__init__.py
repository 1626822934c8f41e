"""`lexmill search NAME`: run or resume the search of conf/search/NAME.yaml, show the best trials, adopt the best."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from lexmill import params
from lexmill.base.errors import EXIT_DONE, UserError
from lexmill.base.progress import say, seconds_text
from lexmill.base.shown import print_line, print_table
from lexmill.base.workspace import run_lock
from lexmill.commands.run import preflight
from lexmill.commands.search import adopting, space, trials
from lexmill.commands.search.loop import Loop, Place, place
from lexmill.commands.trainings.inputs import make_needs
from lexmill.commands.trainings.sending import Sending
from lexmill.compute.execution import load_execution

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
    code = make_needs(about.stage)
    if code != EXIT_DONE:
        return code
    where = place(name, chosen, about, root)
    sending = Sending(settings, root, "search")
    with run_lock(root=root):
        code = Loop(where, chosen, about, root, sending).run()
    if code != EXIT_DONE:
        say("the search was stopped; the same command resumes it")
        return code
    sending(where.folder)
    sending.report()
    _show(where, about, root, take=take)
    return EXIT_DONE


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
