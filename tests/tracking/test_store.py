"""An MLflow store made ready, and its errors as sentences."""

import http.server
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import event
from sqlalchemy.engine import Engine

from lexmill.base.errors import RetryableError, UserError
from lexmill.stages.entry import preflight
from lexmill.tracking import database, store

from ..registry.plain import plain_params

_PREFLIGHT = "import sys; from lexmill.stages.entry import preflight; preflight(); assert 'mlflow' not in sys.modules"


def _workspace(root: Path, **settings: object) -> None:
    (root / "conf" / "execution").mkdir(parents=True)
    (root / "conf" / "execution" / "local.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (root / "params.yaml").write_text(yaml.safe_dump(plain_params()), encoding="utf-8")


def _tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_three_processes_at_once_make_one_whole_database(tmp_path: Path) -> None:
    """By what every door and every stage does first."""
    _workspace(tmp_path, tracking_uri="sqlite:///sub/ml flow.db")
    started = [subprocess.Popen([sys.executable, "-c", _PREFLIGHT], cwd=tmp_path) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    path = tmp_path / "sub" / "ml flow.db"
    assert {"experiments", "runs", "model_versions", "alembic_version"} <= _tables(path)

    # Ready means ready: the next time nothing is done, and MLflow finds what it needs.
    before = path.stat()
    store.prepare("sqlite:///sub/ml flow.db", tmp_path)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with store.opened("sqlite:///sub/ml flow.db", tmp_path) as client:
        assert client.create_experiment("first")

    # A database put in its place by hand is not taken for ready.
    path.unlink()
    sqlite3.connect(path).close()
    assert not database.is_current(path)


@pytest.mark.parametrize("settings", [{"tracking_uri": "http://127.0.0.1:9"}, {"publish": False}])
def test_a_server_that_is_down_holds_no_stage_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    _workspace(tmp_path, **settings)
    monkeypatch.chdir(tmp_path)
    preflight()
    assert not (tmp_path / "mlflow.db").exists()


@pytest.fixture
def impatient() -> Iterator[None]:
    """MLflow waits 20 seconds for a database that is being written; here a tenth of one."""
    changed: list[str] = []

    def change(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        if statement == "PRAGMA busy_timeout = 20000;":
            changed.append(statement)
            statement = "PRAGMA busy_timeout = 100;"
        return statement, parameters

    event.listen(Engine, "before_cursor_execute", change, retval=True)
    yield
    event.remove(Engine, "before_cursor_execute", change)
    assert changed, "MLflow asks for its patience in other words"


@pytest.mark.usefixtures("impatient")
def test_a_database_that_another_writes_can_be_tried_again(root: Path) -> None:
    """SQLite lets one write at a time, and MLflow gives up after a while."""
    uri = "sqlite:///mlflow.db"
    with closing(sqlite3.connect(root / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with (
            pytest.raises(RetryableError, match=r"database is locked.*what was sent stays, `lexmill publish` sends"),
            store.opened(uri, root) as client,
        ):
            client.create_experiment("first")
        other.execute("ROLLBACK")
    with store.opened(uri, root) as client:
        assert client.create_experiment("first")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database, " * 100)
    with pytest.raises(UserError, match=r"mlflow\.db: not an SQLite database"):
        store.prepare("sqlite:///mlflow.db", tmp_path)


@pytest.mark.parametrize("uri", ["mlruns", "file:///tmp/mlruns"])
def test_a_folder_is_refused(uri: str) -> None:
    with pytest.raises(UserError, match=r"use sqlite:///mlflow\.db or the address of a server"):
        store.prepare(uri)


def test_a_relative_database_is_relative_to_the_workspace(tmp_path: Path) -> None:
    assert store.absolute_uri("sqlite:///mlflow.db", tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    assert store.absolute_uri("sqlite:////a/b.db", tmp_path) == "sqlite:////a/b.db"
    assert store.absolute_uri("http://h:1", tmp_path) == "http://h:1"


class _Server(http.server.BaseHTTPRequestHandler):
    """A tracking server whose health is 200 and whose every other answer is `code`."""

    code = 200

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/health" else self.code)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(self.code)

    def _answer(self, code: int) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(b"an answer in words")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _serving(code: int) -> Iterator[str]:
    handler = type("Handler", (_Server,), {"code": code})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_is_down_can_be_tried_again_and_its_password_is_not_shown() -> None:
    with _serving(200) as address:
        port = address.rpartition(":")[2]
    uri = f"http://me:secret@127.0.0.1:{port}"
    with pytest.raises(RetryableError, match="nothing is lost") as caught:
        store.prepare(uri)
    assert f"http://127.0.0.1:{port} does not answer" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("code", [401, 403])
def test_a_server_that_refuses_us(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with (
        _serving(code) as uri,
        pytest.raises(UserError, match="MLFLOW_TRACKING_USERNAME"),
        store.opened(uri) as client,
    ):
        client.search_experiments()


def test_a_server_that_fails_in_the_middle_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with (
        _serving(503) as uri,
        pytest.raises(RetryableError, match="`lexmill publish` sends the rest"),
        store.opened(uri) as client,
    ):
        client.search_experiments()


def test_mlflows_own_default_is_as_before_afterwards() -> None:
    import mlflow

    set_before = mlflow.is_tracking_uri_set()
    with _serving(200) as uri, store.opened(uri):
        assert mlflow.get_tracking_uri() == uri
    assert mlflow.is_tracking_uri_set() == set_before
    assert os.environ.get("MLFLOW_TRACKING_URI") != uri
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == os.environ["DO_NOT_TRACK"] == "true"


def test_a_database_that_is_held_all_the_time_is_no_reason_to_upgrade_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOCKED_SECONDS", 0.05)
    with closing(sqlite3.connect(root / "mlflow.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RetryableError, match=r"mlflow\.db: the database is locked by another process; run again"):
            store.prepare("sqlite:///mlflow.db", root)
    store.prepare("sqlite:///mlflow.db", root)


def test_a_database_that_is_damaged_behind_its_first_pages_is_said_to_be() -> None:
    """MLflow meets the damage only when it reads that page."""
    from mlflow.exceptions import MlflowException

    damaged = pytest.raises(UserError, match=r"sqlite:///mlflow\.db is damaged; put a copy of it in its place")
    with damaged, store.readable_errors("sqlite:///mlflow.db"):
        raise MlflowException("(sqlite3.DatabaseError) database disk image is malformed")
