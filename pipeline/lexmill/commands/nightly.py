"""`lexmill nightly`: look at the sources, run what follows, publish, commit the results to a branch.

Each step starts from what lies in the workspace, not from what the last one remembers: a night that was killed at any
point is finished by the next. The sources' pins are written before the run, and a run that fails leaves them; the next
night looks again and runs what is not done. Only a run that went well is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import EXIT_DONE, LexmillError, RetryableError, UserError, UserErrors
from lexmill.base.progress import say as speak
from lexmill.base.workspace import only_one, run_lock
from lexmill.corpora.fetching import pins
from lexmill.nightly.refresh import Look, changes, refresh
from lexmill.nightly.result_branch import TRAILER, NoRepository, ResultBranch
from lexmill.report import results
from lexmill.runner.sharing import default_remote, push_outputs
from lexmill.stages.entry import preflight

BRANCH = "nightly"
_SHOWN_FILES = 5
_NOT_DONE = "nothing is committed; the sources stay pinned as they are now, and the next night goes on from here"


def nightly(
    targets: Sequence[str] = (),
    jobs: int = 2,
    *,
    branch: str = BRANCH,
    push: str | None = None,
    run: Callable[[], int] | None = None,
    say: Callable[[str], None] = speak,
) -> int:
    """One night of the workspace in the present folder; gives the exit code, that of the run where it failed.

    Args:
        targets: stages or groups of stages; they and what they need. Empty: all.
        jobs: light stages side by side.
        branch: where the results are committed.
        push: the git remote that the branch is pushed to, after its outputs to DVC's default remote; None: none.
        run: the door: runs the targets, publishes, and gives the exit code or raises; default `lexmill run`.
        say: tells people what happens.

    Raises:
        UserError: faults of params or execution settings, a branch that cannot take a commit; before anything is run.
        RetryableError: another night or run is at work, a source without a pin did not answer, a push failed.
    """
    root = Path.cwd()
    with only_one("nightly", root):
        preflight()
        choices = params.load()
        to = _branch(ResultBranch(root, branch), push, say)
        looks = refresh(choices, root)
        _tell(looks, say)
        try:
            ran, code = (True, run()) if run is not None else _run(targets, jobs)
        except LexmillError:
            say(_NOT_DONE)
            raise
        if code != EXIT_DONE:
            say(_NOT_DONE)
            return code
        if to is not None:
            with run_lock("lexmill nightly", root):
                _commit(to, choices, say, quiet=not ran and not any(look.moved for look in looks))
            if push is not None and (nights := to.unpushed(push)):
                _push(to, nights, push, say)
        return EXIT_DONE


def _branch(to: ResultBranch, push: str | None, say: Callable[[str], None]) -> ResultBranch | None:
    """The branch, or None where there is no repository: that is said, and no reason not to run."""
    try:
        to.check()
        if push is not None:
            to.check_remote(push)
            default_remote(to.root)
    except NoRepository as error:
        if push is not None:
            raise UserError(f"--push: {error}") from None
        say(f"the results will not be committed: {error}")
        return None
    return to


def _tell(looks: Sequence[Look], say: Callable[[str], None]) -> None:
    """Say what moved and what could not be looked at.

    Raises:
        UserErrors, RetryableError: a source has no pin and got none now; all that have none.
    """
    for look in looks:
        if look.moved or look.error is not None:
            say(str(look))
    stuck = [look for look in looks if look.stuck]
    if any(isinstance(look.error, UserError) for look in stuck):
        raise UserErrors([str(look) for look in stuck])
    if stuck:
        raise RetryableError("\n".join(str(look) for look in stuck))


def _run(targets: Sequence[str], jobs: int) -> tuple[bool, int]:
    """`lexmill run`; whether there was something to run, and the exit code."""
    from lexmill.commands.run import run, run_nothing

    if run_nothing(targets, jobs):
        return False, EXIT_DONE
    return True, run(targets, jobs)


def _commit(to: ResultBranch, choices: params.Params, say: Callable[[str], None], *, quiet: bool) -> None:
    moved = changes(_pins_before(to), pins.read(to.root))
    others = to.uncommitted()
    new = [row for row in results.collect(choices, to.root) if _is_new(to, row)]
    made = to.commit(message(moved, new, choices.experiment, others))
    if made is None:
        nothing = "no source moved and nothing was to run" if quiet else "the results are those that are committed"
        say(f"skipped: {nothing}; no commit")
        return
    say(f"committed to '{to.name}' as {made[:12]}: {_title(moved)}")
    if others:
        say(f"the run saw changes that are not committed, and the commit does not hold them: {_some(others)}")


def _push(to: ResultBranch, nights: Sequence[str], push: str, say: Callable[[str], None]) -> None:
    """Push the nights' outputs, then the branch that names them: whoever finds a night there finds its outputs too."""
    store = default_remote(to.root)
    if store is None:
        say("DVC has no default remote: the outputs stay on this machine (`dvc remote add --default NAME ADDRESS`)")
    else:
        try:
            whole = push_outputs(to.root, nights)
        except RetryableError as error:
            raise RetryableError(
                f"the outputs are not pushed to DVC's remote '{store}', nor is the branch: {error}; the next night"
                " pushes both"
            ) from None
        lacks = "" if whole else "; some are in no cache of this machine, and whoever pulls makes them anew"
        say(f"pushed the outputs to DVC's remote '{store}'{lacks}")
    to.push(push)
    say(f"pushed '{to.name}' to {push}")


def _pins_before(to: ResultBranch) -> dict[str, dict[str, pins.Entry]]:
    """The lock file's entries as the branch has them."""
    try:
        data = yaml.safe_load(to.file(pins.FILE) or "") or {}
        return {group: dict(data.get(group) or {}) for group in pins.GROUPS}
    except (yaml.YAMLError, AttributeError, TypeError, ValueError):
        return {group: {} for group in pins.GROUPS}  # damaged there: everything is news


def _is_new(to: ResultBranch, row: results.Row) -> bool:
    """Whether a model was measured anew since the commit before."""
    path = layout.metrics("evaluate", row.model)
    return to.file(path.as_posix()) != (to.root / path).read_text(encoding="utf-8")


def message(moved: Sequence[str], rows: Sequence[results.Row], experiment: str, others: Sequence[str] = ()) -> str:
    """The commit's message: which sources moved, the new figures of models, what the commit does not hold.

    Args:
        moved: what moved, a line a source.
        rows: figures that are new.
        experiment: the name of the params' choices.
        others: files with changes that are not committed.
    """
    parts = [_title(moved)]
    if moved:
        parts.append("\n".join(f"* {line}" for line in moved))
    if rows:
        cells = [results.cells(row) for row in rows]
        parts.append("\n".join(f"{model} on {corpus}: {metric} {value}" for model, corpus, metric, value, _ in cells))
    if others:
        parts.append(f"The run saw changes that are not committed: {_some(others)}")
    parts.append(f"{TRAILER}: {experiment}")
    return "\n\n".join(parts) + "\n"


def _title(moved: Sequence[str]) -> str:
    names = [line.partition(":")[0].partition(".")[2] for line in moved]
    return f"Nightly results: {', '.join(names)} moved" if names else "Nightly results"


def _some(files: Sequence[str]) -> str:
    more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
    return ", ".join(files[:_SHOWN_FILES]) + more
