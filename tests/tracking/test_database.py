"""MLflow's SQLite file after a stop at any moment of its creation or upgrade, a full disk, and damage."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lexmill.base.errors import RetryableError, UserError
from lexmill.tracking import database
from tests.support.waiting import wait_for

_MAKE = "import sys, pathlib; from lexmill.tracking.database import make_ready; make_ready(pathlib.Path(sys.argv[1]))"


def made(path: Path, *before: str) -> subprocess.Popen[bytes]:
    """A process, leader of its own group, that makes the database ready."""
    command = [*before, sys.executable, "-c", _MAKE, str(path)]
    return subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)


def count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def is_whole(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        sound = connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return sound and database.is_current(path) and count(path, "runs") == 0


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a kill in the middle of its creation leaves of a database."""
    path = tmp_path_factory.mktemp("killed") / "mlflow.db"
    new = path.with_name(".mlflow.db.new")
    process = made(path)
    wait_for(lambda: new.exists() and new.stat().st_size > 300_000)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not path.exists(), "nothing half made has its name"
    return new


def copied(interrupted: Path, place: Path) -> Path:
    for suffix in ("", "-journal"):
        if (file := interrupted.with_name(interrupted.name + suffix)).exists():
            shutil.copy(file, place.with_name(place.name + suffix))
    return place


def test_a_kill_during_creation_costs_nothing(interrupted: Path, tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    copied(interrupted, tmp_path / interrupted.name)
    database.make_ready(path)
    assert is_whole(path)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        *(".mlflow.db.lock", ".mlflow.db.place.json", ".mlflow.db.schema.json", "mlflow.db"),
    ]


def test_what_a_kill_left_in_its_place_is_finished_or_moved_aside(interrupted: Path, tmp_path: Path) -> None:
    """As an older lexmill made it, in its place."""
    path = copied(interrupted, tmp_path / "mlflow.db")
    database.make_ready(path)
    assert is_whole(path)


def test_an_unfinished_database_is_moved_aside(
    empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "mlflow.db", database._upgrade
    shutil.copy(empty_store / "mlflow.db", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE metrics")
        connection.execute("DELETE FROM alembic_version")  # the last that is written
    assert database.is_unfinished(path)
    monkeypatch.setattr(database, "_upgrade", lambda file, lock: "failed" if file == path else real(file, lock))
    database.make_ready(path)
    assert is_whole(path)
    assert not database.is_unfinished(path)
    assert (tmp_path / "mlflow.db.unfinished").exists()


def test_the_killed_parent_of_an_upgrade_lets_nobody_in_before_it_ends(tmp_path: Path) -> None:
    """The lock belongs to the process that writes, too."""
    path = tmp_path / "mlflow.db"
    process = made(path)
    wait_for(lambda: path.with_name(".mlflow.db.new").exists())
    process.kill()
    process.communicate()
    database.make_ready(path)  # waits for the child, whose work nobody wants, and makes its own
    assert is_whole(path)


def with_a_run(empty_store: Path, place: Path) -> Path:
    path = place / "mlflow.db"
    shutil.copy(empty_store / "mlflow.db", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO runs (run_uuid, experiment_id, status) VALUES ('a', 0, 'FINISHED')")
    return path


def test_a_failed_upgrade_leaves_the_database_as_it_was(
    empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_a_run(empty_store, tmp_path)

    def fails(file: Path, _lock: int) -> str:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("DROP TABLE metrics")
        return "a step of the schema failed"

    monkeypatch.setattr(database, "_upgrade", fails)
    with pytest.raises(UserError, match=r"mlflow\.db: .*a step of the schema failed"):
        database.make_ready(path)
    assert (count(path, "runs"), count(path, "metrics")) == (1, 0)
    assert not path.with_name(".mlflow.db.before").exists()


def test_an_interrupted_upgrade_is_undone_and_done_again(
    empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = with_a_run(empty_store, tmp_path), database._upgrade

    def stopped(file: Path, _lock: int) -> str:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("DROP TABLE alembic_version")
        raise KeyboardInterrupt

    monkeypatch.setattr(database, "_upgrade", stopped)
    with pytest.raises(KeyboardInterrupt):
        database.make_ready(path)
    assert database.is_unfinished(path)
    monkeypatch.setattr(database, "_upgrade", real)
    database.make_ready(path)
    assert database.is_current(path)
    assert count(path, "runs") == 1
    assert not path.with_name(".mlflow.db.before").exists()


@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_can_be_tried_again(
    there: bool, empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_a_run(empty_store, tmp_path) if there else tmp_path / "mlflow.db"
    full = "(sqlite3.OperationalError) database or disk is full"
    monkeypatch.setattr(database, "_upgrade", lambda *_: full)
    with pytest.raises(RetryableError, match="disk is full"):
        database.make_ready(path)
    assert path.exists() == there
    assert not there or count(path, "runs") == 1


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE mine (a)")
    before = path.read_bytes()
    with pytest.raises(UserError, match="not MLflow's database"):
        database.make_ready(path)
    assert path.read_bytes() == before


def test_a_damaged_database_is_reported_and_left(empty_store: Path, tmp_path: Path) -> None:
    path = with_a_run(empty_store, tmp_path)
    content = bytearray(path.read_bytes())
    content[100:20_000] = bytes(len(content[100:20_000]))
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"mlflow\.db: .*damaged"):
        database.make_ready(path)
    assert path.read_bytes()[100:] == bytes(content[100:])  # before that is SQLite's own count of changes
