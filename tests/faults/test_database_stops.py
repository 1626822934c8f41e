"""Stops while MLflow's database is made, at moments spread over its growth, then the same command: as if undisturbed.

Not part of `make test`: `make torture`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lexmill.tracking import database
from tests.faults.conftest import PROPERTY
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)]

_MAKE = "import sys, pathlib; from lexmill.tracking.database import make_ready; make_ready(pathlib.Path(sys.argv[1]))"
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
SIZES = range(0, 900_000, 75_000)


def schema(path: Path) -> list[tuple[str, list[str]]]:
    """Each table and index; its lines sorted, for MLflow's migrations write constraints in the order of a set."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return sorted((name, sorted(line.strip(" \t,") for line in sql.split("\n"))) for name, sql in rows)


@pytest.mark.parametrize("size", SIZES)
def test_a_stop_while_the_database_grows(
    size: int, empty_store: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "mlflow.db"
    new = tmp_path / ".mlflow.db.new"
    sent = SIGNALS[SIZES.index(size) % len(SIGNALS)]
    process = subprocess.Popen([sys.executable, "-c", _MAKE, str(path)], start_new_session=True, stderr=subprocess.PIPE)
    wait_for(lambda: process.poll() is not None or (new.exists() and new.stat().st_size >= size))
    if process.poll() is None:
        os.killpg(process.pid, sent)
        record_property(PROPERTY, f"making MLflow's database, {sent.name}")
    process.communicate()
    database.make_ready(path)
    assert database.is_current(path)
    assert schema(path) == schema(empty_store / "mlflow.db")
    assert not new.exists()
