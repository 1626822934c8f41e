"""A workspace with an empty MLflow store, and a server that fails on demand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lexmill.base import storage

SERVER = Path(__file__).with_name("failing_server.py")


@pytest.fixture
def root(tmp_path: Path, empty_store: Path) -> Path:
    """A workspace with an empty store."""
    for path in empty_store.iterdir():
        shutil.copy(path, tmp_path / path.name)
    return tmp_path


@dataclass
class Server:
    """A tracking server of a store in `root`."""

    uri: str
    root: Path

    def answers(self, how: str) -> None:
        """Set how it fails: see failing_server.py."""
        storage.write_text(self.root / "mode", how)


@pytest.fixture(scope="module")
def running_server(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(empty_store, tmp_path_factory.mktemp("server")) as server:
        yield server


@contextmanager
def serving(empty_store: Path, where: Path) -> Iterator[Server]:
    """A server of a new store in the folder `where`; it waits to be told how it answers."""
    for path in empty_store.iterdir():
        shutil.copy(path, where / path.name)
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open(where / "server.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), str(where)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **quiet},
        )
    assert process.stdout is not None
    try:
        port = process.stdout.readline().decode().strip()
        assert port, (where / "server.log").read_text(encoding="utf-8")
        yield Server(f"http://127.0.0.1:{port}", where)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def server(running_server: Server) -> Server:
    """The server, in good health."""
    running_server.answers("ok")
    return running_server
