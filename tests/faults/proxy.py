"""A proxy on loopback that fails on demand, in front of a real server: which request fails, and how, is certain.

    with Proxy(("127.0.0.1", 5000)) as proxy:
        proxy.fail("500")             # every request from now on
        proxy.fail("lose", at=3)      # the third request from now on, no other
        ...
        assert proxy.injected == 1

| fault | what the client sees |
|---|---|
| `down` | every connection is refused, as by a machine without that server; there is nobody to count them |
| `reset` | the connection ends unread |
| `hang` | the request is read, and never answered nor passed on |
| `401` `403` `429` `500` | that status; 429 comes with a Retry-After of ten minutes |
| `lose` | the request is done, and its answer is lost |
| `cut` | the request is done, and its answer ends after 20 bytes |

A request is one of HTTP, each on its own connection; with `http=False` a connection of any protocol (`reset`, `hang`,
`lose`, `cut`).
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

CUT_AFTER = 20  # bytes
_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close by a reset, whatever is unread
_STATUS = {"401": "Unauthorized", "403": "Forbidden", "429": "Too Many Requests", "500": "Internal Server Error"}
_HEADER = {"401": "WWW-Authenticate: Basic\r\n", "429": "Retry-After: 600\r\n"}


class Proxy:
    """Passes on to `upstream`; `seen` counts requests and `injected` faults since the last `fail` or `heal`."""

    def __init__(self, upstream: tuple[str, int] | None = None, *, http: bool = True) -> None:
        self._upstream, self._http = upstream, http
        self._lock = threading.Lock()
        self._fault, self._at, self._after, self._spare = "", 0, 0, ""
        self.seen = self.injected = 0
        self.paths: list[str] = []  # of the requests that failed
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        # Bound and never listening, it refuses connections and keeps the port ours while the listener is closed.
        self._holder = self._bound(0)
        self.port = int(self._holder.getsockname()[1])

    @staticmethod
    def _bound(port: int) -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(("127.0.0.1", port))
        return made

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._refuse()
        self._drop()
        self._holder.close()

    def fail(self, fault: str, at: int = 0, *, after: int = 0, spare: str = "") -> None:
        """Fail every request from now on, or `after` so many, or the `at`-th alone; those for `spare` do not count.

        Connections that are open end.
        """
        self._set(fault, at, after, spare)
        if fault == "down":
            self._refuse()
        else:
            self._listen()
        self._drop()

    def heal(self) -> None:
        """Pass on everything from now on."""
        self._set("")
        self._listen()
        self._drop()

    def _set(self, fault: str, at: int = 0, after: int = 0, spare: str = "") -> None:
        with self._lock:
            self._fault, self._at, self._after, self._spare = fault, at, after, spare
            self.seen, self.injected, self.paths = 0, 0, []

    def _next(self, path: str) -> str:
        """Count a request; return its fault, "" for none."""
        with self._lock:
            if self._spare and self._spare in path:
                return ""
            self.seen += 1
            if not self._fault or (self._at and self._at != self.seen) or self.seen <= self._after:
                return ""
            self.injected += 1
            self.paths.append(path)
            return self._fault

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = self._bound(self.port)
            self._listener.listen(128)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
            self._listener = None

    def _drop(self) -> None:
        with self._lock:
            left, self._open = self._open, set()
        for one in left:
            with suppress(OSError):  # its thread may have closed it
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        try:
            with client, suppress(OSError):  # a client may leave, and does so when it gives up
                if self._http:
                    self._request(client)
                else:
                    self._connection(client)
        finally:
            with self._lock:
                self._open.discard(client)

    def _request(self, client: socket.socket) -> None:
        """Read one request whole, then fail it or pass it on."""
        head, rest = _head(client)
        if not head:
            return
        fault = self._next(head.split(b"\r\n", 1)[0].decode("latin-1"))
        if fault == "reset":
            return _reset(client)
        if b"\nupgrade:" in head.lower() and not fault:
            return self._both_ways(client, head + rest)
        if b"\nexpect:" in head.lower():
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = _body(client, head, rest)
        if fault == "hang":
            client.recv(1)  # until the client leaves or we are told otherwise
        elif fault in _STATUS:
            said = f"HTTP/1.1 {fault} {_STATUS[fault]}\r\n{_HEADER.get(fault, '')}Connection: close\r\n"
            text = "" if head.startswith(b"HEAD ") else "no"  # an answer to HEAD has no body
            client.sendall(f"{said}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{text}".encode())
        else:
            # One request a connection, so that the next one is counted too.
            head = re.sub(rb"\r\n(?:connection|expect):[^\r]*", b"", head, flags=re.IGNORECASE)
            self._relay(client, head[:-2] + b"Connection: close\r\n\r\n" + body, fault)
        return None

    def _relay(self, client: socket.socket, request: bytes, fault: str) -> None:
        assert self._upstream is not None
        answer = b""
        with socket.create_connection(self._upstream) as server:
            server.sendall(request)
            while data := server.recv(_CHUNK):
                answer += data
                if not fault:
                    client.sendall(data)
        if fault == "cut":
            client.sendall(answer[:CUT_AFTER])
        if fault:
            _reset(client)

    def _connection(self, client: socket.socket) -> None:
        fault = self._next("")
        if fault == "reset":
            return _reset(client)
        if fault == "hang":
            while client.recv(_CHUNK):
                pass
            return None
        keep: Callable[[bytes], bytes] = {"lose": lambda _: b"", "cut": lambda data: data[:CUT_AFTER]}.get(
            fault, lambda data: data
        )
        return self._both_ways(client, b"", keep)

    def _both_ways(self, client: socket.socket, first: bytes, keep: Callable[[bytes], bytes] | None = None) -> None:
        assert self._upstream is not None
        with socket.create_connection(self._upstream) as server:
            server.sendall(first)
            back = threading.Thread(target=_pump, args=(server, client, keep), daemon=True)
            back.start()
            _pump(client, server)
            back.join()


def _pump(source: socket.socket, target: socket.socket, keep: Callable[[bytes], bytes] | None = None) -> None:
    """Pass on until the source ends; where something is withheld, end after the first piece."""
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            kept = data if keep is None else keep(data)
            target.sendall(kept)
            if len(kept) < len(data):
                _reset(target)
                return
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client.close()


def _head(client: socket.socket) -> tuple[bytes, bytes]:
    """The request line and headers with the empty line, and what came with them; nothing from who only connects."""
    found = b""
    while b"\r\n\r\n" not in found:
        data = client.recv(_CHUNK)
        if not data:
            return b"", b""
        found += data
    head, _, rest = found.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _body(client: socket.socket, head: bytes, found: bytes) -> bytes:
    """The body as it came: of its length, or in chunks up to the empty one."""
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    chunked = re.search(rb"\r\ntransfer-encoding: *chunked", head, re.IGNORECASE)

    def whole() -> bool:
        if chunked:
            return found.endswith(b"0\r\n\r\n")
        return len(found) >= int(length[1] if length else 0)

    while not whole():
        data = client.recv(_CHUNK)
        if not data:
            break
        found += data
    return found
