"""The files of an MLflow database that lies elsewhere than before: its workspace was moved, renamed or copied.

MLflow stores where each experiment, run and model keeps its files, as absolute addresses only. Those below the folder
that the database was in are rewritten to the one that it is in, so nothing is read from the old place or written there.

    .mlflow.db.place.json     the folder that the addresses are of

A database without that file, of an older lexmill, was in the folder that its experiments name, if their files came with
it.
Cost: one read of the file.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

from lexmill.base import storage
from lexmill.base.errors import RetryableError, UserError

FILES = "mlruns"
_LOCKED_SECONDS = 30.0
_OURS = re.compile(rf"file://(/.*)/{FILES}/([^/]+)")
_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def damaged(error: Exception, path: Path) -> UserError:
    """Return the error of a database that SQLite cannot read."""
    return UserError(f"MLflow's database is damaged ({error}); put a copy of it in its place, or move it away", path)


def is_here(path: Path) -> bool:
    """Return whether the addresses in a database are known to be of its present folder."""
    return _noted(path) == _folder(path).as_uri()


def relocate(path: Path) -> Path | None:
    """Rewrite the addresses of a database that was moved; return its old folder, None where nothing was to do.

    Raises:
        RetryableError: another process holds the database.
        UserError: the database is damaged.
    """
    folder = _folder(path)
    try:
        with closing(sqlite3.connect(path, timeout=_LOCKED_SECONDS)) as connection:
            noted = _noted(path)
            old = Path(unquote(noted.removeprefix("file://"))) if noted else _named(connection, folder)
            same = old is None or os.path.realpath(old) == os.path.realpath(folder)
            changed = 0 if old is None or same else _rewrite(connection, old, folder)
    except sqlite3.OperationalError as error:
        raise RetryableError(f"{path}: the places of its files cannot be corrected ({error}); try again") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite quotes what it found
        raise damaged(error, path) from None
    storage.write_json(_note(path), {"folder": folder.as_uri()})
    return old if changed else None


def _folder(path: Path) -> Path:
    return path.absolute().parent


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.place.json")


def _noted(path: Path) -> str:
    try:
        return str(storage.read_json(_note(path))["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _named(connection: sqlite3.Connection, folder: Path) -> Path | None:
    """Return the folder that the experiments of this database name, if it is another one and their files are here."""
    for (location,) in connection.execute("SELECT artifact_location FROM experiments ORDER BY experiment_id"):
        found = _OURS.fullmatch(location or "")
        if found and (folder / FILES / unquote(found[2])).is_dir():
            return Path(unquote(found[1]))
    return None


def _rewrite(connection: sqlite3.Connection, old: Path, new: Path) -> int:
    """Replace the old folder at the beginning of each address, in one transaction; return how many there were.

    Without any, nothing is written, which would wait for others that write.
    """
    changed = 0
    with connection:
        for table, column in _COLUMNS:
            if column not in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}:
                continue
            for before, after in ((old.as_uri(), new.as_uri()), (str(old), str(new))):
                which, is_old = f"substr({column}, 1, ?) = ?", (len(before) + 1, f"{before}/")
                if not connection.execute(f"SELECT count(*) FROM {table} WHERE {which}", is_old).fetchone()[0]:
                    continue
                changed += connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE {which}",
                    (f"{after}/", len(before) + 2, *is_old),
                ).rowcount
    return changed
