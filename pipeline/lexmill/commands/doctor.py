"""`lexmill doctor`: report what dead processes left, each as a sentence; `--fix` repairs what is safe to repair.

Nothing that a living process holds is touched: `--fix` takes the workspace's lock, as a run does. Exit code 0 where all
is well (or was repaired), 2 where something is left.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from lexmill import params
from lexmill.base.errors import EXIT_DONE, EXIT_USER, LexmillError, UserError
from lexmill.base.shown import print_line
from lexmill.base.workspace import held_by, run_lock
from lexmill.commands.check import LEAST_FREE
from lexmill.compute import execution
from lexmill.compute.execution import Execution
from lexmill.runner import leftovers
from lexmill.runner import old_checkpoints as checkpoints
from lexmill.runner.leftovers import Finding, counted
from lexmill.runner.record import RunRecord, unfinished

_LEAST_SHARE = 0.05


def doctor(*, fix: bool, remove_checkpoints: bool) -> int:
    """Report what is wrong, repair what is safe with `fix`, and return the exit code.

    Args:
        fix: repair what is safe.
        remove_checkpoints: with `fix`, also remove checkpoints kept for a longer training or abandoned.

    Raises:
        UserError: this is no project, or its execution settings have errors.
        RetryableError: `fix` was asked for while a run is active.
    """
    root = Path.cwd()
    if remove_checkpoints and not fix:
        raise UserError("--checkpoints removes files, so it needs --fix; without both they are listed")
    settings = execution.load_execution(root)
    with run_lock("lexmill doctor", root) if fix else nullcontext():
        left = sum([not _closed(finding, fix) for finding in _findings(root, settings)])
        if remove_checkpoints:
            _remove_checkpoints(root, settings)
        _list_kept(root, settings)
    if left:
        return EXIT_USER
    print_line("all is well")
    return EXIT_DONE


def _closed(finding: Finding, fix: bool) -> bool:
    """Report a finding, repaired with `fix` where that is possible; return whether it was."""
    if not fix or finding.fix is None:
        print_line(finding)
        return False
    try:
        finding.fix()
    except (LexmillError, OSError) as error:
        why = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else error
        print_line(f"{finding.what}; this could not be repaired: {why}")
        return False
    print_line(f"repaired: {finding.what}")
    return True


def _findings(root: Path, settings: Execution) -> Iterator[Finding]:
    """Find all, a cause before its consequences."""
    yield from _runs(root)
    yield from _tracking(root, settings)
    yield from leftovers.half_written(root)
    yield from _half_saved(_checkpoint_root(root, settings))
    yield from leftovers.held_paths(root)
    yield from leftovers.damaged_hashes(root)
    yield from leftovers.servers(root)
    yield from leftovers.worktrees(root)
    yield from _disks(root, settings)


def _runs(root: Path) -> Iterator[Finding]:
    for place in (root, *leftovers.kept_worktrees(root)):
        where = "" if place == root else f" in the worktree {place.name}"
        for record in unfinished(place):
            yield Finding(
                f"{run_words(record)} has died{where}",
                "`lexmill doctor --fix` closes its record, and so does the next run, which resumes the work",
                partial(record.end, None),
            )


def run_words(record: RunRecord) -> str:
    """Return a run in words: `the run 'lexmill run' of 2026-01-02T03:04:05Z, at train@gpt`."""
    at = [stage.name for stage in record.stages if stage.state == "running"]
    return f"the run '{record.what}' of {record.started}" + (f", at {', '.join(at)}," if at else "")


def _tracking(root: Path, settings: Execution) -> Iterator[Finding]:
    if not settings.publish or find_spec("mlflow") is None:
        return
    from lexmill.commands.sync import send
    from lexmill.tracking import spool
    from lexmill.tracking.database import is_unfinished
    from lexmill.tracking.store import outdated, prepare

    old = outdated(settings.tracking_uri, root)
    if old is not None:
        if is_unfinished(old):
            what = "is unfinished: its creation or upgrade was stopped"
            fix = "`lexmill doctor --fix` repairs it, and so does the next run"
        else:
            what = "was made by another version of MLflow"
            fix = "`lexmill doctor --fix` upgrades it, and so does the next run; keep a copy to be able to go back"
        yield Finding(f"the MLflow database {old} {what}", fix, lambda: prepare(settings.tracking_uri, root))
    waits = spool.waiting(root)
    if waits:
        count = len(waits.points) + len(waits.records)

        def send_all() -> None:
            send(params.load(root / "params.yaml"), settings, print, root)

        yield Finding(
            f"{counted(count, 'record')} of trainings and runs wait for MLflow, which may show dead runs as running",
            "`lexmill sync` (or `lexmill doctor --fix`) sends the rest and marks dead runs as killed",
            send_all,
        )


def _half_saved(root: Path) -> Iterator[Finding]:
    if found := list(checkpoints.half_saved(root)):
        size = sum(map(leftovers.size_of, found))

        def clear() -> None:
            for path in found:
                shutil.rmtree(path)

        yield Finding(
            f"{counted(len(found), 'half-saved checkpoint')} of dead trainings ({size / 1e6:,.1f} MB) under {root}",
            "`lexmill doctor --fix` removes them, and so does the training when it resumes",
            clear,
        )


def _disks(root: Path, settings: Execution) -> Iterator[Finding]:
    seen: set[int] = set()
    for wanted in (root, _checkpoint_root(root, settings), Path.home()):
        place = next(folder for folder in (wanted, *wanted.parents) if folder.exists())
        device, usage = place.stat().st_dev, shutil.disk_usage(place)
        if device in seen or usage.free >= max(LEAST_FREE, _LEAST_SHARE * usage.total):
            continue
        seen.add(device)
        free, total = usage.free / 2**30, usage.total / 2**30
        yield Finding(
            f"the disk of {place} is nearly full: {free:.1f} of {total:.0f} GiB are free",
            "`dvc gc --workspace` removes old results from DVC's cache, the download cache may be emptied, and"
            " `lexmill doctor --fix --checkpoints` removes old checkpoints",
        )


def _checkpoint_root(root: Path, settings: Execution) -> Path:
    return root / Path(settings.checkpoint_root).expanduser()


def _list_kept(root: Path, settings: Execution) -> None:
    """List what is kept deliberately, so that the user can delete it."""
    if found := checkpoints.kept(_checkpoint_root(root, settings)):
        print_line(f"checkpoints ({sum(one.size for one in found) / 1e6:,.1f} MB):")
        for one in found:
            print_line(f"  {one}")
    for place in leftovers.kept_worktrees(root):
        path, active = place.relative_to(root), held_by(place) is not None
        remove = "a run is active in it" if active else f"`git worktree remove --force {path}` removes it"
        print_line(f"worktree {place.name} ({leftovers.size_of(place) / 1e6:,.1f} MB): {remove}")


def _remove_checkpoints(root: Path, settings: Execution) -> None:
    for one in checkpoints.kept(_checkpoint_root(root, settings)):
        if one.removable:
            print_line(f"removed {checkpoints.remove(one) / 1e6:,.1f} MB of {one.model}'s checkpoints in {one.path}")
