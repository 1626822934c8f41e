"""Ask whether a tracking store answers, within seconds: MLflow tries for minutes, a database's driver for ever.

An HTTP server is asked for its health. PostgreSQL is asked whether it speaks TLS, its first message, which needs no
login; MySQL greets by itself; of another database only the connection is tried.
"""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from urllib.parse import SplitResult, urlsplit

from lexmill.base.addresses import redact
from lexmill.base.errors import RetryableError, UserError
from lexmill.tracking.links import base_url

ANSWER_SECONDS = 5.0  # whether there is a server at all
CALL_SECONDS = 10  # for the answer to one call
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
_SPEAKS_TLS = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"  # PostgreSQL's SSLRequest
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
        reason = str(error) or type(error).__name__
        raise RetryableError(f"the tracking database {redact(uri)} does not answer ({reason}); {_LOST}") from None


def _greet(kind: str, parts: SplitResult, port: int) -> None:
    with socket.create_connection((str(parts.hostname), port), timeout=ANSWER_SECONDS) as connection:
        if kind == "postgresql":
            connection.sendall(_SPEAKS_TLS)
        if kind in ("postgresql", "mysql") and not connection.recv(1):
            raise ConnectionError("it closed the connection")
