"""MLflow's SQLite file: made, upgraded and repaired so that no stop at any moment leaves it broken.

Processes that create or upgrade the file at once corrupt it, and so does one that is killed on the way. So it happens
under a file lock, which the upgrading process holds too and keeps if its parent dies. A new file is made beside its
place and renamed. An old one is upgraded in place, since other processes may hold it open, with a copy beside it from
which an interrupted upgrade is undone.

    mlflow.db                 the database
    .mlflow.db.lock           the lock
    .mlflow.db.new            a database that is being made
    .mlflow.db.before         the database before an upgrade that has not ended
    .mlflow.db.place.json     the folder that it lies in (`relocation`)
    .mlflow.db.schema.json    which version of MLflow made or upgraded it: no other check is needed

Cost: six seconds once for each version of MLflow, afterwards a read of each small file (under a millisecond).
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

from lexmill.base import storage
from lexmill.base.errors import LexmillError, RetryableError, UserError
from lexmill.base.progress import say
from lexmill.tracking.relocation import damaged, is_here, relocate

LOCKED_SECONDS = 30.0  # how long another process may hold the database file
SCHEME = "sqlite:///"
_MAGIC = b"SQLite format 3\0"
_FULL = re.compile(r"disk is full|no space left|disk quota exceeded|file too large", re.IGNORECASE)
_CONTENTS = {"runs": 0, "registered_models": 0, "experiments": 1}  # the most rows that MLflow makes by itself


def make_ready(path: Path) -> None:
    """Create the file, or upgrade it to the installed MLflow, or adapt it to its place; do nothing where that was done.

    An unfinished file without runs or models, left by a stop of an older lexmill or of MLflow itself, is moved aside.

    Raises:
        RetryableError: the disk is full, or another process holds the file.
        UserError: the file is no MLflow database, or cannot be upgraded; it is as it was.
    """
    if is_current(path) and is_here(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")) as lock:
        if not is_current(path):
            _make_current(path, lock)
        if not is_here(path) and (old := relocate(path)) is not None:
            say(f"{path.name} was moved from {old}; the places of its files were corrected")


def _make_current(path: Path, lock: int) -> None:
    if not path.exists() or not path.stat().st_size:
        _create(path, lock)
    elif _head(path) != _MAGIC:
        raise UserError("not an SQLite database; move it away or set another tracking_uri", path)
    elif _is_foreign(path):
        raise UserError("not MLflow's database; move it away or set another tracking_uri", path)
    else:
        _renew(path, lock)


def is_current(path: Path) -> bool:
    """Return whether this version of MLflow made or upgraded the present file."""
    try:
        mark = storage.read_json(_mark(path))
    except (OSError, ValueError):
        return False
    revision = _revision(path)
    return revision is not None and mark == {"mlflow": version("mlflow"), "revision": revision}


def is_unfinished(path: Path) -> bool:
    """Return whether the file's creation or upgrade was interrupted: `make_ready` repairs it."""
    if _before(path).exists():
        return True
    return path.is_file() and _head(path) == _MAGIC and not _is_foreign(path) and _revision(path) is None


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold a lock file, yielding its descriptor; the lock ends with the last process that has it open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream.fileno()


def _create(path: Path, lock: int) -> None:
    new = path.with_name(f".{path.name}.new")
    _remove(new)
    error = _upgrade(new, lock)
    if error is not None:
        _remove(new)
        raise _failure(error, path)
    new.replace(path)
    storage.flush_folder(path.parent)
    _write_mark(path)


def _renew(path: Path, lock: int) -> None:
    """Upgrade a database; where that fails it is as before, or made anew if it never held anything."""
    before = _before(path)
    interrupted = before.exists()
    if not interrupted:
        _save(path, before)
    error = _upgrade(path, lock)
    if error is not None and interrupted:  # it stopped within a step of the schema: undo all of them and begin again
        _copy(before, path)
        error = _upgrade(path, lock)
    if error is None:
        before.unlink()  # before the mark: no later upgrade may find this copy
        _write_mark(path)
        return
    _copy(before, path)
    before.unlink()
    if not _FULL.search(error) and _is_empty(path):
        path.replace(_free_name(path))
        _create(path, lock)
        return
    raise _failure(error, path)


def _upgrade(path: Path, lock: int) -> str | None:
    """Let MLflow create or upgrade the file; return what went wrong."""
    # A separate process keeps its output and imports away from ours.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mlflow", "db", "upgrade", f"{SCHEME}{path}"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
        pass_fds=(lock,),
    )
    if not done.returncode and _revision(path) is not None:
        return None
    return done.stderr.strip() or "no reason was given"


def _failure(error: str, path: Path) -> LexmillError:
    if found := _FULL.search(error):
        return RetryableError(f"{path}: MLflow's database cannot be made or upgraded ({found[0].lower()}); make room")
    if _rows(path, "PRAGMA quick_check(1)") not in ([("ok",)], [(0,)]):
        return UserError("MLflow's database is damaged; put a copy of it in its place, or move it away", path)
    lines = [line for line in error.split("\n") if not line.startswith(("(Background", "[SQL", "[parameters"))]
    last = lines[-1] if lines else error
    return UserError(f"MLflow could not create or upgrade its database: {last}", path)


def _save(path: Path, copy: Path) -> None:
    """Make a whole copy under a name that is there only when it is whole."""
    unfinished = copy.with_name(f"{copy.name}.new")
    _remove(unfinished)
    try:
        _copy(path, unfinished)
    except BaseException:
        _remove(unfinished)
        raise
    unfinished.replace(copy)


def _copy(path: Path, target: Path) -> None:
    """Copy a database over another, in one transaction."""
    try:
        with (
            closing(sqlite3.connect(path, timeout=LOCKED_SECONDS)) as source,
            closing(sqlite3.connect(target, timeout=LOCKED_SECONDS)) as copy,
        ):
            source.backup(copy)
    except sqlite3.OperationalError as error:
        raise RetryableError(f"{path}: MLflow's database cannot be copied ({error}); nothing is lost") from None
    except sqlite3.DatabaseError as error:
        raise damaged(error, path) from None


def _is_foreign(path: Path) -> bool:
    """Return whether the file holds tables, none of them MLflow's."""
    names = {str(name) for (name,) in _rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'") or ()}
    if not names or "alembic_version" in names or "experiments" in names:
        return False
    import mlflow.store.db.base_sql_model
    import mlflow.store.model_registry.dbmodels.models
    import mlflow.store.tracking.dbmodels.models  # each adds its tables to Base

    return not names & set(mlflow.store.db.base_sql_model.Base.metadata.tables)


def _is_empty(path: Path) -> bool:
    """Return whether nobody has put anything in it: no run, no model, no experiment but MLflow's own."""
    for table, most in _CONTENTS.items():
        rows = _rows(path, f"SELECT count(*) FROM {table}")
        if rows is None or rows[0][0] > most:
            return False
    return True


def _rows(path: Path, query: str) -> list[tuple[Any, ...]] | None:
    """Return a query's rows, [(0,)] without the table; None where the file is damaged."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=LOCKED_SECONDS)) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.OperationalError as error:
        return [(0,)] if "no such table" in str(error) else None
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # SQLite quotes what it found
        return None


def _revision(path: Path) -> str | None:
    """Return the file's schema revision, None without one; raise `RetryableError` where it stays locked."""
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=LOCKED_SECONDS)) as connection:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            what = "the database is locked by another process; run again when that has ended"
            raise RetryableError(f"{path}: {what}") from None
        return None
    return None if row is None else str(row[0])


def _head(path: Path) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(len(_MAGIC))


def _mark(path: Path) -> Path:
    return path.with_name(f".{path.name}.schema.json")


def _write_mark(path: Path) -> None:
    storage.write_json(_mark(path), {"mlflow": version("mlflow"), "revision": _revision(path)})


def _before(path: Path) -> Path:
    return path.with_name(f".{path.name}.before")


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.unfinished{number or ''}") for number in count())
    return next(name for name in names if not name.exists())


def _remove(path: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
