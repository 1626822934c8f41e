"""The proxy fails as it is told, at the request it is told, and counts that."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from .proxy import CUT_AFTER, Proxy

BODY = b"x" * 100


@pytest.fixture
def done() -> list[bytes]:
    """What the server behind the proxy was sent."""
    return []


@pytest.fixture
def proxy(done: list[bytes]) -> Iterator[Proxy]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            done.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(BODY)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    with Proxy(("127.0.0.1", server.server_address[1])) as made:
        yield made
    server.shutdown()
    server.server_close()
    thread.join()


def post(proxy: Proxy, path: str = "/", seconds: float = 60) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=seconds)
    try:
        connection.request("POST", path, b"asked")
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_what_is_well_passes(proxy: Proxy, done: list[bytes]) -> None:
    assert post(proxy) == (200, BODY)
    assert (done, proxy.seen, proxy.injected) == ([b"asked"], 1, 0)


@pytest.mark.parametrize("status", ["401", "403", "429", "500"])
def test_a_status_is_given_in_the_servers_place(proxy: Proxy, done: list[bytes], status: str) -> None:
    proxy.fail(status, at=2)
    assert [post(proxy, f"/{i}")[0] for i in range(3)] == [200, int(status), 200]
    assert (len(done), proxy.seen, proxy.injected, proxy.paths) == (2, 3, 1, ["POST /1 HTTP/1.1"])


def test_a_server_may_fail_for_good_after_some_requests(proxy: Proxy) -> None:
    proxy.fail("500", after=2)
    assert [post(proxy)[0] for _ in range(4)] == [200, 200, 500, 500]
    assert proxy.injected == 2


@pytest.mark.parametrize(("fault", "reaches"), [("reset", 0), ("lose", 1), ("cut", 1)])
def test_an_answer_is_withheld(proxy: Proxy, done: list[bytes], fault: str, reaches: int) -> None:
    proxy.fail(fault)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        post(proxy)
    assert (len(done), proxy.injected) == (reaches, 1)
    proxy.heal()
    assert post(proxy) == (200, BODY)


def test_a_request_hangs_and_others_may_be_spared(proxy: Proxy, done: list[bytes]) -> None:
    proxy.fail("hang", spare="/health")
    assert post(proxy, "/health")[0] == 200
    with pytest.raises(TimeoutError):
        post(proxy, seconds=0.2)
    assert (len(done), proxy.seen, proxy.injected) == (1, 1, 1)


def test_a_server_that_is_down_refuses_and_comes_back_at_its_port(proxy: Proxy) -> None:
    proxy.fail("down")
    with pytest.raises(ConnectionRefusedError):
        post(proxy)
    proxy.heal()
    assert post(proxy) == (200, BODY)


@pytest.mark.parametrize(("fault", "comes"), [("", 100), ("lose", 0), ("cut", CUT_AFTER), ("hang", 0), ("reset", 0)])
def test_connections_of_any_protocol(fault: str, comes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(5) and BODY)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with Proxy(server.getsockname(), http=False) as proxy:
            proxy.fail(fault)
            found = b""
            try:
                with socket.create_connection(("127.0.0.1", proxy.port), timeout=0.3) as client:
                    client.sendall(b"asked")
                    while data := client.recv(1000):
                        found += data
            except OSError:
                assert fault
            assert len(found) == comes
            assert proxy.injected == bool(fault)
