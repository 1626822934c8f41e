"""A store that is away, or takes connections and says nothing, is reported within seconds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from psycopg2 import extensions

from lexmill.base.errors import RetryableError, UserError
from lexmill.tracking import reaching, store


@contextmanager
def listening(answer: bytes | None) -> Iterator[int]:
    """A server that reads a message and answers; None: it says nothing, and holds the connection."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    connection.recv(8)
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()


@pytest.mark.parametrize("kind", ["postgresql", "postgresql+psycopg2", "mysql+pymysql", "mssql"])
def test_a_database_that_is_down_can_be_tried_again_and_its_password_is_not_shown(kind: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RetryableError, match=rf"{port}/runs does not answer .*nothing is lost") as caught:
        store.prepare(f"{kind}://me:hush@127.0.0.1:{port}/runs")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("answer", [None, b""])
def test_a_database_that_takes_connections_and_says_nothing(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "ANSWER_SECONDS", 0.2)
    with listening(answer) as port, pytest.raises(RetryableError, match="does not answer"):
        store.prepare(f"postgresql://127.0.0.1:{port}/runs")


def test_a_database_that_answers_is_left_to_mlflow() -> None:
    with listening(b"N") as port:
        store.prepare(f"postgresql://127.0.0.1:{port}/runs")


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://",
        "postgresql://host",
        "postgresql://me:hush@[::1/runs",
        "postgresql://me:hush@host:port/runs",
        "http://[::1",
        "http://a host/x",
        "https://me:hush@",
        "http://",
    ],
)
def test_what_is_no_address_is_one_sentence(uri: str) -> None:
    with pytest.raises(UserError, match=r"tracking_uri: '.*' ") as caught:
        store.prepare(uri)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (b"", RetryableError, "does not answer .*no answer within 0.2 s.*nothing is lost"),
        (
            b"E\0\0\0\x3fSFATAL\0C28P01\0Mpassword authentication failed for user me\0\0",
            UserError,
            "refuses us .*password authentication failed.*PGPASSWORD",
        ),
    ],
)
def test_a_database_that_greets_is_logged_in_to_before_mlflow_tries_for_minutes(
    said: bytes, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is silent from then on, or refuses."""
    monkeypatch.setattr(reaching, "CALL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(8)
                connection.sendall(b"N")
                connection.recv(1000)
                connection.sendall(said)
                over.wait()

        over = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(kind, match=words) as caught:
                reaching.log_in(f"postgresql://me:hush@127.0.0.1:{server.getsockname()[1]}/runs")
        finally:
            extensions.set_wait_callback(None)
            over.set()
            thread.join()
    assert "hush" not in str(caught.value)
