"""Servers of MLflow and Prefect on 127.0.0.1 as child processes, each ended with the process that started it.

A server runs under the runner's supervisor, so it ends even if its parent is killed. A Prefect server writes its
address to .lexmill/servers/prefect.json, so that the pages and a run of the same workspace share one: two servers on
one SQLite file block each other ("database is locked").
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexmill.base import storage
from lexmill.base.answering import answers
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.quiet import quieten
from lexmill.base.workspace import HOME

HOST = "127.0.0.1"
PREFECT_PORT = 4200
MLFLOW_PORT = 5000
START_SECONDS = 180.0
_POLL_SECONDS = 0.2
_PROJECT = Path(__file__).resolve().parents[3]  # holds flows/, where Prefect is imported
_ANSWER_SECONDS = 5.0
_ANSWERED = (401, 403, 404)  # Prefect's client says what is wrong
_ORDERLY_SECONDS = 3.0  # Prefect needs ten; its SQLite file survives a kill


def free_port(preferred: int = 0) -> int:
    """Return the preferred port if it is free, else one that the system chooses."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RetryableError(f"no free port on {HOST}")


@contextmanager
def own_port(preferred: int) -> Iterator[int]:
    """Reserve a port, the preferred one if free, until a server that takes seconds to start has bound it."""
    port = free_port(preferred)
    while True:
        with open(Path(tempfile.gettempdir()) / f"lexmill-{os.getuid()}-port-{port}.lock", "ab") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                port = free_port()
                continue
            yield port
            return


def ask(mlflow: Server, what: str, body: Mapping[str, str] | None = None) -> Any:
    """Call the API of our MLflow server (POST if there is a body); return its answer, None for a 404."""
    address = f"{mlflow.url}/api/2.0/mlflow/{what}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


@dataclass
class Server:
    """A running or starting server: its page, health address, process and log."""

    name: str
    url: str
    health: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Wait until it answers.

        Raises:
            RetryableError: it ended, or did not answer in time; with the end of its log.
        """
        deadline = time.monotonic() + seconds
        # If this one has ended, another server may answer at its port.
        while self.process.poll() is not None or not answers(self.health):
            ended = self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                lines = self.log.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-8:]
                what = "ended while starting" if ended else f"did not answer within {seconds:.0f} seconds"
                head = f"the {self.name} server {what}; its log, {self.log}, ends:"
                raise RetryableError("\n  ".join([head, *lines]))
            time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """End it and all its children."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"t")
            self.process.stdin.flush()
        except OSError:
            self.process.wait()
        try:
            self.process.wait(timeout=_ORDERLY_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.stdin.close()  # the supervisor then kills what is left, as if we had died
            self.process.wait()


@contextmanager
def serving(
    name: str, command: Sequence[str], port: int, *, health: str, environment: Mapping[str, str], root: Path
) -> Iterator[Server]:
    """Run a server under the supervisor during the block (it may not answer yet: `Server.wait`)."""
    quieten()
    log = root / HOME / "logs" / f"{name}-server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "lexmill.runner.supervisor", sys.executable, "-m", *command],
            cwd=root,
            env={**os.environ, "PYTHONSAFEPATH": "1", **environment},  # no file of this folder shadows a library
            stdin=subprocess.PIPE,
            bufsize=0,  # a failed write to an ended server must not be repeated at close
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://{HOST}:{port}"
    server = Server(name, url, url + health, process, log)
    try:
        yield server
    finally:
        server.end()
        assert process.stdin is not None
        process.stdin.close()


def prefect_home(root: Path) -> Path:
    """Return the folder of this workspace's Prefect database."""
    return Path(os.environ.get("PREFECT_HOME") or root / ".prefect").expanduser()


def prefect_setting(name: str) -> str | None:
    """Return the user's Prefect setting from the environment or the active profile, or None."""
    import tomllib

    if value := os.environ.get(name):
        return value
    profiles = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser() / "profiles.toml"
    try:
        data = tomllib.loads(profiles.read_text(encoding="utf-8"))
        active = os.environ.get("PREFECT_PROFILE") or data.get("active", "")
        found = data.get("profiles", {}).get(active, {}).get(name)
    except (OSError, ValueError, AttributeError):
        return None
    return str(found) if found else None


def configured_prefect() -> str | None:
    """Return the Prefect API that the user has set, or None."""
    return prefect_setting("PREFECT_API_URL")


def ask_prefect(url: str) -> None:
    """Check that a Prefect API answers and accepts us, for Prefect's own errors are hard to read.

    Raises:
        RetryableError: nothing answers there.
        UserError: it refuses us, or the address is wrong.
    """
    if not url.startswith(("http://", "https://")):
        raise UserError(f"PREFECT_API_URL: '{url}' is no address; it is as http://127.0.0.1:4200/api")
    request = urllib.request.Request(f"{url.rstrip('/')}/admin/version")
    if key := prefect_setting("PREFECT_API_KEY"):
        request.add_header("Authorization", f"Bearer {key}")
    elif login := prefect_setting("PREFECT_API_AUTH_STRING"):
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
            return
    except urllib.error.HTTPError as error:
        # A gateway may want headers that only Prefect is configured with.
        if error.code in (401, 403) and not prefect_setting("PREFECT_CLIENT_CUSTOM_HEADERS"):
            raise UserError(
                f"the Prefect server {url} refuses us (HTTP {error.code}); set PREFECT_API_AUTH_STRING, or"
                " PREFECT_API_KEY, in the environment"
            ) from None
        if error.code not in _ANSWERED:
            raise _no_prefect(url, f"HTTP {error.code}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLError):
            return  # Prefect has its own certificates
        raise _no_prefect(url, reason) from None


def _no_prefect(url: str, reason: object) -> RetryableError:
    return RetryableError(f"the Prefect server {url} does not answer ({reason}); start it, or unset PREFECT_API_URL")


def running_prefect(root: Path) -> str | None:
    """Return the page of the Prefect server that already serves this workspace, or None."""
    try:
        url = str(storage.read_json(_prefect_file(root))["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if answers(f"{url}/api/health") else None


def _prefect_file(root: Path) -> Path:
    return root / HOME / "servers" / "prefect.json"


@contextmanager
def serving_prefect(root: Path, port: int | None = None) -> Iterator[Server]:
    """Run a Prefect server on this workspace's database; others find it by `running_prefect`."""
    if port is None:
        with own_port(PREFECT_PORT) as own, serving_prefect(root, own) as server:
            yield server
        return
    environment = {
        "PREFECT_HOME": str(prefect_home(root)),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # By default the page calls port 4200, whatever the server's own port is.
        "PREFECT_UI_API_URL": "/api",
        "PREFECT_API_URL": f"http://{HOST}:{port}/api",
    }
    # Not `prefect server start`, whose server answers to any Host.
    application = ("--app-dir", str(_PROJECT), "--factory", "flows.local_server:create_app")
    command = ("uvicorn", *application, "--host", HOST, "--port", str(port), "--log-level", "warning")
    with serving("prefect", command, port, health="/api/health", environment=environment, root=root) as server:
        storage.write_json(_prefect_file(root), {"url": server.url, "pid": server.process.pid})
        try:
            yield server
        finally:
            _prefect_file(root).unlink(missing_ok=True)


@contextmanager
def serving_mlflow(store: str, root: Path, port: int | None = None) -> Iterator[Server]:
    """Run an MLflow server on a store, `sqlite:///...` with an absolute path."""
    if port is None:
        with own_port(MLFLOW_PORT) as own, serving_mlflow(store, root, own) as server:
            yield server
        return
    environment = {
        # Saves seven job processes of 240 MB each, for features that we do not use.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_BACKEND_STORE_URI": store,  # its password would be in the list of processes
    }
    command = ("mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1")
    with serving("mlflow", command, port, health="/health", environment=environment, root=root) as server:
        yield server
