"""The gate in front of a served model: slow, many, half-sent and broken requests, over a real socket."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from lexmill.base.allowed_hosts import Receive, Scope, Send
from lexmill.registry import gate
from lexmill.registry.gate import Gate, PatientProtocol
from tests.support.waiting import wait_for

JSON = {"content-type": "application/json"}


class Echo:
    """Answers with the body once `open` is set; fails where the body is "fail"."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"] if scope["method"] == "POST" else b""
        self.inside += 1
        while not self.open.is_set():
            await asyncio.sleep(0.01)
        if body == b'"fail"':
            raise RuntimeError("a bug\nin two lines")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(app: Any) -> Iterator[int]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", http=PatientProtocol)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()


def post(port: int, body: bytes | str, headers: dict[str, str] = JSON) -> tuple[int, str, Callable[[str], str | None]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.getheader
    finally:
        connection.close()


def test_a_request_passes_unchanged() -> None:
    with serving(Gate(Echo())) as port:
        body = json.dumps({"a": [1.5, "b" * 100_000]})
        assert post(port, body)[:2] == (200, body)


@pytest.mark.parametrize("head", [b"", b"POST / HTTP/1.1\r\nHost: a\r\nContent-"])
def test_a_connection_without_a_whole_head_is_closed(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "HEAD_SECONDS", 0.2)
    with serving(Gate(Echo())) as port, socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(head)
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            return


def test_a_second_request_may_come_on_the_same_connection_after_a_long_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "HEAD_SECONDS", 0.2)
    echo = Echo()
    echo.open.clear()
    with serving(Gate(echo)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/", b"1", JSON)
        threading.Timer(1, echo.open.set).start()
        assert connection.getresponse().read() == b"1"
        connection.request("POST", "/", b"2", JSON)
        assert connection.getresponse().read() == b"2"
        connection.close()


def test_a_body_that_comes_too_slowly_is_refused_and_harms_nobody() -> None:
    with serving(Gate(Echo(), seconds=0.3)) as port:
        slow = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(30)]
        for one in slow:
            one.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/csv\r\nContent-Length: 100\r\n\r\nabc")
        assert post(port, "1")[0] == 200
        for one in slow:
            assert one.recv(65536).startswith(b"HTTP/1.1 408")
            one.close()


def test_more_than_may_wait_are_asked_to_come_again() -> None:
    echo = Echo()
    echo.open.clear()
    app = Gate(echo, most_waiting=3)
    with serving(app) as port:
        answers: list[int] = []
        threads = [threading.Thread(target=lambda: answers.append(post(port, "1")[0])) for _ in range(3)]
        for one in threads:
            one.start()
        wait_for(lambda: echo.inside == 3)
        code, text, header = post(port, "1")
        assert (code, header("retry-after")) == (503, "1")
        assert "too many requests wait" in text
        echo.open.set()
        for one in threads:
            one.join()
        assert answers == [200] * 3
        assert post(port, "1")[0] == 200
    assert (app._waiting, app._held) == (0, 0)


def test_the_bytes_that_wait_are_bounded() -> None:
    with serving(Gate(Echo(), most_held=0)) as port:
        assert post(port, "1")[0] == 503


def test_an_error_inside_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), serving(Gate(Echo())) as port:
        code, text, _ = post(port, '"fail"')
        assert code == 500
        assert "a bug" not in text
    (record,) = caplog.records
    assert record.getMessage() == "a request failed: RuntimeError: a bug in two lines"
    assert record.exc_info is None


def test_requests_that_break_off_leave_nothing() -> None:
    app = Gate(Echo())
    with serving(app) as port:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/csv\r\nContent-Length: 100\r\n\r\nabc")
        deadline = time.monotonic() + 60
        while app._waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (app._waiting, app._held) == (0, 0)


def test_a_connection_is_cut_only_if_no_request_began_between_two_looks() -> None:
    """Requests are compared by identity, not by their address in memory, which is used again."""
    looks: list[Any] = []
    cut: list[bool] = []
    one: Any = object.__new__(PatientProtocol)
    one.loop = SimpleNamespace(call_later=lambda _seconds, _look, seen: looks.append(seen))
    one.transport = SimpleNamespace(is_closing=lambda: False, abort=lambda: cut.append(True))
    first, second = (SimpleNamespace(response_complete=done) for done in (True, False))
    one.cycle = first
    one._watch(None)
    one.cycle = second
    one._watch(looks[-1])
    one._watch(looks[-1])  # still being answered
    assert cut == []
    second.response_complete = True
    one._watch(looks[-1])
    assert (cut, looks) == ([True], [first, second, second])
