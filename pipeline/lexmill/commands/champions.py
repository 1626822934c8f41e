"""`lexmill promote | rollback | champions`: move the champion's alias by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lexmill import params
from lexmill.base.errors import UserError
from lexmill.base.shown import print_line, print_table
from lexmill.compute import execution
from lexmill.tracking.store import sqlite_path


def promote(name: str, version: str | None, reason: str) -> None:
    """Make a version the champion (None: the newest) and report it.

    Raises:
        UserError: no such model or version, or it is the champion already.
        RetryableError: the tracking server does not answer.
    """
    from lexmill.registry import champion

    with _registry() as (client, root):
        moved = champion.promote(client, root, name, version, reason)
        _write_page(root)
    instead = f", instead of version {moved.before}" if moved.before else ""
    print_line(f"{name}: version {moved.version} is the champion now{instead}")


def rollback(name: str, reason: str) -> None:
    """Give the alias back to the previous champion and report it.

    Raises:
        UserError: no such model, or no version was champion before.
        RetryableError: the tracking server does not answer.
    """
    from lexmill.registry import champion

    with _registry() as (client, root):
        moved = champion.rollback(client, root, name, reason)
        _write_page(root)
    print_line(f"{name}: back to version {moved.version}; version {moved.before} is no longer the champion")


def champions(name: str | None) -> None:
    """Show the champion of each registered model, or all versions of one.

    Raises:
        UserError: no such model.
        RetryableError: the tracking server does not answer.
    """
    from lexmill.registry import listing

    with _registry() as (client, _):
        rows = listing.champions(client) if name is None else listing.versions(client, name)
    if not rows:
        raise UserError("the registry holds no model yet; `lexmill run` makes and registers them")
    _show(rows)


@contextmanager
def _registry() -> Iterator[tuple[Any, Path]]:
    """Yield a client of the existing registry and the workspace, under the lock of publishing."""
    from lexmill.registry import decisions
    from lexmill.registry.deciding import held

    root, uri = Path(), execution.load_execution().tracking_uri
    path = sqlite_path(uri, root)
    if path is not None and not path.is_file():
        raise UserError("there is no registry yet; `lexmill run` makes it", path)
    left = decisions.interrupted(root)
    with held(uri, root) as client:
        if left:  # settled now, also where this command fails
            _write_page(root)
        yield client, root


def _write_page(root: Path) -> None:
    from lexmill.registry import decisions

    if (root / "params.yaml").is_file():
        decisions.write_page(params.load(root / "params.yaml"), root)


def _show(rows: Sequence[dict[str, str]]) -> None:
    from rich.table import Table

    table = Table()
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*row.values())
    print_table(table, wide=160)
