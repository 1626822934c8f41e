"""Ask whether a tracking store answers, within seconds: MLflow tries for minutes, a database's driver for ever.

An HTTP server is asked for its health. PostgreSQL is asked whether it speaks TLS, its first message, which needs no
login; MySQL greets by itself; of another database only the connection is tried.
"""

from __future__ import annotations

import re
import select
import socket
import urllib.error
import urllib.request
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lexmill.base.addresses import redact
from lexmill.base.errors import RetryableError, UserError
from lexmill.tracking.links import base_url

ANSWER_SECONDS = 5.0  # whether there is a server at all
CALL_SECONDS = 10  # for the answer to one call
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
_SPEAKS_TLS = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"  # PostgreSQL's SSLRequest
_REFUSED = re.compile(r"authentication failed|no password supplied|does not exist|no pg_hba.conf entry")
_LOST = "nothing is lost: start it, or set tracking_uri in conf/execution/, then `lexmill publish`"


def ask_server(uri: str) -> None:
    """Raise `RetryableError` where an MLflow server does not answer."""
    address = f"{base_url(uri)}/health"
    try:
        with urllib.request.urlopen(address, timeout=ANSWER_SECONDS):
            return
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404):
            return  # it answers; the call itself will report what is wrong
        reason = f"HTTP {error.code}"
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "reason", error))
    raise RetryableError(f"the tracking server {base_url(uri)} does not answer ({reason}); {_LOST}")


def ask_database(uri: str) -> None:
    """Raise `RetryableError` where a database's server does not answer, `UserError` where the address is none."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise UserError(f"tracking_uri: '{redact(uri)}' is no address: {error}") from None
    kind = parts.scheme.partition("+")[0]
    if kind not in _PORTS:
        return
    if not parts.path.strip("/"):
        raise UserError(f"tracking_uri: '{redact(uri)}' names no database; it is as {kind}://HOST/DATABASE")
    if parts.hostname is None:
        return  # through a socket of this machine
    try:
        _greet(kind, parts, port or _PORTS[kind])
    except OSError as error:
        raise _silent(uri, error) from None


def _silent(uri: str, error: Exception) -> RetryableError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return RetryableError(f"the tracking database {redact(uri)} does not answer ({reason}); {_LOST}")


def log_in(uri: str) -> None:
    """Log in to a PostgreSQL database before MLflow, which tries a wrong password for two minutes; bound every wait.

    Its driver waits for ever by itself. From here on, a call of it in this process fails after `CALL_SECONDS` without
    a byte.

    Raises:
        RetryableError: it does not answer.
        UserError: it refuses us.
    """
    if not uri.startswith("postgresql") or find_spec("psycopg2") is None:
        return
    import psycopg2
    from psycopg2 import extensions

    def wait(connection: Any) -> None:
        while (state := connection.poll()) != extensions.POLL_OK:
            reads, writes = ([connection], []) if state == extensions.POLL_READ else ([], [connection])
            if not any(select.select(reads, writes, [], CALL_SECONDS)):
                raise psycopg2.OperationalError(f"no answer within {CALL_SECONDS} s")

    extensions.set_wait_callback(wait)
    try:
        psycopg2.connect(f"postgresql:{uri.partition(':')[2]}").close()
    except psycopg2.OperationalError as error:
        if _REFUSED.search(str(error)):
            said = " ".join(str(error).split())
            raise UserError(
                f"the tracking database {redact(uri)} refuses us ({said}); set PGPASSWORD in the environment, or"
                " ~/.pgpass"
            ) from None
        raise _silent(uri, error) from None


def _greet(kind: str, parts: SplitResult, port: int) -> None:
    with socket.create_connection((str(parts.hostname), port), timeout=ANSWER_SECONDS) as connection:
        if kind == "postgresql":
            connection.sendall(_SPEAKS_TLS)
        if kind in ("postgresql", "mysql") and not connection.recv(1):
            raise ConnectionError("it closed the connection")
