"""Open an MLflow store (a database file or a server) and report its errors as sentences.

`prepare` makes an SQLite file ready (`database`). A server must answer before MLflow is imported, which alone tries for
minutes.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lexmill.base import storage
from lexmill.base.addresses import invalid, redact
from lexmill.base.cutting import cut
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.quiet import quieten
from lexmill.tracking import database
from lexmill.tracking.links import base_url
from lexmill.tracking.reaching import CALL_SECONDS, ask_database, ask_server, log_in

if TYPE_CHECKING:
    from mlflow import MlflowClient

_STORES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "databricks")
# By default MLflow waits two minutes for an answer, asks eight times, and pauses as long as a busy server says. A
# command of ours ends within 15 seconds without an answer, and knows better what may be asked twice. MLflow also prints
# links and progress bars.
_MANNERS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(CALL_SECONDS),
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def sqlite_path(uri: str, workspace: str | Path = ".") -> Path | None:
    """Return the absolute path of a `sqlite:///` store's file; None for any other store."""
    if not uri.startswith(database.SCHEME):
        return None
    return (Path(workspace) / unquote(uri.removeprefix(database.SCHEME))).absolute()


def absolute_uri(uri: str, workspace: str | Path = ".") -> str:
    """Return the store's address with an absolute path of a database file."""
    path = sqlite_path(uri, workspace)
    return uri if path is None else f"{database.SCHEME}{path}"


def prepare(uri: str, workspace: str | Path = ".") -> None:
    """Make a store ready: create or upgrade its SQLite file under a lock, or check that its server answers.

    Args:
        uri: `sqlite:///file` (relative to the workspace), `http(s)://server`, or another database's address, which
            its owner creates and upgrades (`mlflow db upgrade`).

    Raises:
        RetryableError: the server does not answer, or another process holds the file.
        UserError: the address is of no kind that MLflow serves, or the file is no MLflow database.
    """
    path = sqlite_path(uri, workspace)
    if path is not None:
        database.make_ready(path)
    elif uri.startswith(("http://", "https://")):
        check_address(uri)
        ask_server(uri)
    else:
        check_address(uri)
        ask_database(uri)


def outdated(uri: str, workspace: str | Path = ".") -> Path | None:
    """Return the SQLite file that `prepare` would upgrade, made by another version of MLflow; else None."""
    path = sqlite_path(uri, workspace)
    return path if path is not None and path.exists() and not database.is_current(path) else None


def check_address(uri: str) -> None:
    """Raise `UserError` where an address is of no kind that MLflow serves."""
    kind = uri.partition(":")[0].partition("+")[0]
    if kind in _STORES and "://" in uri:
        if reason := invalid(uri):
            raise UserError(f"tracking_uri: '{redact(uri)}' cannot be used: {reason}; it is as http://127.0.0.1:5000")
        return
    folder = "://" not in uri or kind == "file"
    what = "a folder, which MLflow no longer writes to" if folder else f"not a store that MLflow knows ('{kind}')"
    raise UserError(f"tracking_uri: '{redact(uri)}' is {what}; use sqlite:///mlflow.db or the address of a server")


@contextmanager
def opened(uri: str, workspace: str | Path = ".") -> Iterator[MlflowClient]:
    """Yield a client of a prepared store, which is MLflow's default inside the block.

    Raises:
        RetryableError, UserError: see `prepare`; also when the store fails inside the block.
    """
    quieten()
    for name, value in _MANNERS.items():
        os.environ.setdefault(name, value)
    prepare(uri, workspace)
    log_in(uri)
    import mlflow

    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    address = absolute_uri(uri, workspace)
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    mlflow.set_tracking_uri(address)
    try:
        with readable_errors(uri):
            yield mlflow.MlflowClient(address, address)
    finally:
        mlflow.set_tracking_uri(before)  # type: ignore[arg-type]  # None: as it was, not set


def experiment_id(client: MlflowClient, name: str, database: Path | None) -> str:
    """Return the experiment of this name, made if need be, with files beside a local database."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        plain = all(c.isalnum() or c in "-_" for c in name)
        place = name if plain else storage.sha256_bytes(name.encode())[:16]
        files = None if database is None else (database.parent / "mlruns" / place).as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=files))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)  # another machine was faster
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


@contextmanager
def readable_errors(uri: str) -> Iterator[None]:
    """Turn MLflow's exceptions of a failing store into sentences that say what to do.

    Raises:
        RetryableError: the store is gone or busy.
        UserError: the store refuses us, or its database is damaged.
    """
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException

    try:
        yield
    except (MlflowException, RequestException) as error:
        where = base_url(uri) if uri.startswith("http") else redact(uri)
        answer = _words(error)
        code = getattr(error, "error_code", "")
        if _DAMAGED.search(str(error)):
            raise UserError(
                f"the database of the tracking store {where} is damaged; put a copy of it in its place, or move it away"
            ) from error
        if _REFUSED.search(str(error)) or code in ("PERMISSION_DENIED", "UNAUTHENTICATED"):
            raise UserError(
                f"the tracking server {where} refuses us: {answer}; set MLFLOW_TRACKING_USERNAME and"
                " MLFLOW_TRACKING_PASSWORD (or MLFLOW_TRACKING_TOKEN) in the environment, or start the server with"
                " --allowed-hosts for this name"
            ) from error
        if isinstance(error, RequestException) or code == "TEMPORARILY_UNAVAILABLE" or _PASSING.search(str(error)):
            raise RetryableError(
                f"the tracking store {where} failed: {answer}; what was sent stays, `lexmill publish` sends the rest"
            ) from error
        raise


def _words(error: Exception) -> str:
    """Return what an exception says, in short."""
    said = " ".join(str(error).split())
    if "ReadTimeoutError" in said or "Read timed out" in said:
        return f"no answer within {os.environ['MLFLOW_HTTP_REQUEST_TIMEOUT']} s (MLFLOW_HTTP_REQUEST_TIMEOUT)"
    if many := _TOO_MANY.search(said):
        return f"HTTP {many[1]}"
    return cut(said.rpartition("Caused by ")[2] or said, 300)


# An outage, and a refusal, in the messages of MLflow's exceptions.
_PASSING = re.compile(
    r"failed with exception|error code 5\d\d|too many 5\d\d|Max retries exceeded|Connection refused"
    r"|database is locked|Read timed out|could not connect|no answer within"
)
_DAMAGED = re.compile(r"database disk image is malformed|file is not a database")  # SQLite's words
_REFUSED = re.compile(r"error code 40[13]\b|\b40[13] Client Error")
_TOO_MANY = re.compile(r"too many (\d+) error responses")
