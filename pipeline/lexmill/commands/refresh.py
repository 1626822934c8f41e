"""`lexmill refresh`: check the sources that move, and pin them as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lexmill import params
from lexmill.base.errors import EXIT_DONE, EXIT_RETRY, EXIT_USER, UserError
from lexmill.base.shown import print_line
from lexmill.corpora.fetching import pins
from lexmill.nightly.refresh import Look, refresh


def command(names: Sequence[str], *, dry_run: bool) -> int:
    """Refresh, print what moved, and return the exit code.

    2 where a source is missing or misnamed, 75 where no source answered or one without a pin did not; else 0, also
    where a source that did not answer keeps its old pin.

    Raises:
        UserErrors: params.yaml has errors.
        UserError: a name that is none of its corpora or checkpoints.
        RetryableError: a run holds the workspace.
    """
    choices = params.load()
    looks = refresh(choices, Path.cwd(), names, dry_run=dry_run)
    fixed = [
        f"{group}.{name} does not move: params.yaml pins it"
        for group, named in pins.sources(choices).items()
        for name, source in named.items()
        if name in names and not pins.moves(source)
    ]
    for line in [*looks, *fixed]:
        print_line(line)
    moved = sum(look.moved for look in looks)
    if looks:
        would = "would move" if dry_run else "moved"
        written = f"; {pins.FILE} is written" if moved and not dry_run else ""
        print_line(f"{moved} of {len(looks)} source{'' if len(looks) == 1 else 's'} {would}{written}")
    elif not names:
        print_line("no source moves: params.yaml pins each of them")
    return code_of(looks)


def code_of(looks: Sequence[Look]) -> int:
    """Return the exit code for these sources."""
    failed = [look for look in looks if look.error is not None]
    if any(isinstance(look.error, UserError) for look in failed):
        return EXIT_USER
    if any(look.stuck for look in failed) or (failed and len(failed) == len(looks)):
        return EXIT_RETRY
    return EXIT_DONE
