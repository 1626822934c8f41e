"""The addresses of a moved database: a damaged one is a sentence, and stays as it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.tracking.relocation import is_here, relocate


def made(folder: Path, old: Path) -> Path:
    """A database whose files were in another folder, as its note says."""
    path = folder / "mlflow.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE experiments (experiment_id, artifact_location)")
        connection.execute("CREATE TABLE runs (artifact_uri)")
        rows = [(f"{old.as_uri()}/{i:05d}/{'x' * 200}",) for i in range(2000)]
        connection.executemany("INSERT INTO runs VALUES (?)", rows)
    storage.write_json(folder / ".mlflow.db.place.json", {"folder": old.as_uri()})
    return path


def test_a_moved_database_names_its_present_folder(tmp_path: Path) -> None:
    path = made(tmp_path, tmp_path / "old")
    assert relocate(path) == tmp_path / "old"
    assert is_here(path)
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT artifact_uri FROM runs").fetchall()
    assert all(uri.startswith(f"{tmp_path.as_uri()}/0") for (uri,) in found)


def test_a_damaged_one_is_a_sentence_and_stays_as_it_was(tmp_path: Path) -> None:
    path = made(tmp_path, tmp_path / "old")
    data = bytearray(path.read_bytes())
    data[8192:-4096] = b"\xff" * (len(data) - 12288)  # the rows of runs
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"MLflow's database is damaged .*; put a copy of it in its place"):
        relocate(path)
    assert path.read_bytes() == bytes(data)
    assert not is_here(path)
