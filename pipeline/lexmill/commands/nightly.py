"""`lexmill nightly`: refresh the sources, run what changed, publish, commit the results to a branch.

Each step starts from the workspace's files, so the next night finishes one that was killed at any point. The sources'
pins are written before the run, and a failed run leaves them; the next night refreshes again and runs what is not done.
Only a successful run is committed.
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
_NOT_DONE = "nothing is committed; the sources stay pinned as they are now, and the next night continues from here"


def nightly(
    targets: Sequence[str] = (),
    jobs: int = 2,
    *,
    branch: str = BRANCH,
    push: str | None = None,
    run: Callable[[], int] | None = None,
    say: Callable[[str], None] = speak,
) -> int:
    """Run one night in the present folder's workspace; return the exit code, that of the run if it failed.

    Args:
        targets: stages or groups of stages, run with what they need. Empty: all.
        jobs: light stages that run in parallel.
        branch: where the results are committed.
        push: the git remote to push the branch to, after its outputs to DVC's default remote; None: none.
        run: runs the targets, publishes, and returns the exit code or raises; default `lexmill run`.
        say: called with each message.

    Raises:
        UserError: errors in params or execution settings, a branch that cannot take a commit; before anything runs.
        RetryableError: another night or run is active, a source without a pin did not answer, a push failed.
    """
    root = Path.cwd()
    with only_one("nightly", root):
        preflight()
        choices = params.load()
        to = _branch(ResultBranch(root, branch), push, say)
        looks = refresh(choices, root)
        _report(looks, say)
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
    """Return the branch; without a repository say so and return None, which does not stop the run."""
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


def _report(looks: Sequence[Look], say: Callable[[str], None]) -> None:
    """Report what moved and what could not be checked.

    Raises:
        UserErrors, RetryableError: sources that had no pin and got none; names all.
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
    """Do `lexmill run`; return whether there was something to run, and the exit code."""
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
        nothing = "no source moved and nothing was to run" if quiet else "the results are committed already"
        say(f"skipped: {nothing}; no commit")
        return
    say(f"committed to '{to.name}' as {made[:12]}: {_title(moved)}")
    if others:
        say(f"the run saw changes that are not committed, and the commit does not hold them: {_some(others)}")


def _push(to: ResultBranch, nights: Sequence[str], push: str, say: Callable[[str], None]) -> None:
    """Push the nights' outputs, then the branch that names them, so that no night is there without its outputs."""
    store = default_remote(to.root)
    if store is None:
        say("DVC has no default remote: the outputs stay on this machine (`dvc remote add --default NAME ADDRESS`)")
    else:
        try:
            whole = push_outputs(to.root, nights)
        except (RetryableError, UserError) as error:
            raise type(error)(
                f"the outputs are not pushed to DVC's remote '{store}', nor is the branch: {error}; the next night"
                " pushes both"
            ) from None
        lacks = "" if whole else "; some are not in this machine's cache and will be made again after a pull"
        say(f"pushed the outputs to DVC's remote '{store}'{lacks}")
    to.push(push)
    say(f"pushed '{to.name}' to {push}")


def _pins_before(to: ResultBranch) -> dict[str, dict[str, pins.Entry]]:
    """Return the entries of sources.lock.yaml on the branch."""
    try:
        data = yaml.safe_load(to.file(pins.FILE) or "") or {}
        return {group: dict(data.get(group) or {}) for group in pins.GROUPS}
    except (yaml.YAMLError, AttributeError, TypeError, ValueError):
        return {group: {} for group in pins.GROUPS}  # damaged on the branch: every source counts as moved


def _is_new(to: ResultBranch, row: results.Row) -> bool:
    """Return whether a model's metrics differ from those of the last commit."""
    path = layout.metrics("evaluate", row.model)
    return to.file(path.as_posix()) != (to.root / path).read_text(encoding="utf-8")


def message(moved: Sequence[str], rows: Sequence[results.Row], experiment: str, others: Sequence[str] = ()) -> str:
    """Return the commit's message: the sources that moved, new metrics, uncommitted files.

    Args:
        moved: one line a source.
        rows: the new metrics.
        experiment: its name in params.yaml.
        others: files with uncommitted changes.
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
