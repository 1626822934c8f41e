"""The gate between strangers' requests and MLflow's scoring application.

MLflow answers some bad requests with status 500 and a traceback in its log, holds a half-sent one for ever, and takes
as many as come. Here a request is read whole first, within bounds of size and time, and its JSON is looked over; then
it waits for its turn in a queue of fixed length. A request that is refused costs no thread and one line of the log.

    400 not JSON, nested too deeply, a number too long        408 its body came too slowly
    413 too large     415 no content type                     503 too many wait; the answer says when to try again
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from lexmill.base import storage
from lexmill.base.allowed_hosts import App, Message, Receive, Scope, Send
from lexmill.base.cutting import cut

MOST_BYTES = 16_000_000  # of a request
_TOO_LARGE = f"the request is too large; send at most {MOST_BYTES // 1_000_000} MB at once"
MOST_WAITING = 512  # requests; at 30 ms each the last waits a quarter of a minute
MOST_HELD = 256_000_000  # bytes of all requests that wait
BODY_SECONDS = 30.0  # from a request's first byte to its last
HEAD_SECONDS = 10.0
_LONGEST_NUMBER = 400  # digits: the largest float64 has 309
_logger = logging.getLogger("lexmill.serve")


class Gate:
    """An ASGI application in front of another: refuses what it would fail at, with 4xx and a sentence."""

    def __init__(
        self, app: App, *, most_waiting: int = MOST_WAITING, most_held: int = MOST_HELD, seconds: float = BODY_SECONDS
    ) -> None:
        self._app = app
        self._most_waiting, self._most_held, self._seconds = most_waiting, most_held, seconds
        self._waiting = self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            if scope["method"] == "POST":
                await self._post(scope, receive, noted)
            else:
                await self._app(scope, receive, noted)
        except _Refused as error:
            await _answer(send, error.status, str(error))
        except Exception as error:
            text = cut(" ".join(str(error).split()), 300)
            _logger.warning("a request failed: %s: %s", type(error).__name__, text)
            if not started:
                await _answer(send, 500, "the server failed at this request; its log says more")

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").strip().lower()
        if not kind:
            raise _Refused(415, "the request has no content type; send application/json or text/csv")
        if self._waiting >= self._most_waiting or self._held >= self._most_held:
            raise _Refused(503, "too many requests wait; send it again in a second")
        self._waiting += 1
        body = bytearray()
        try:
            await self._read(receive, body)
            if kind.startswith(b"application/json"):
                _look_over(bytes(body))
            await self._app(scope, _replaying(bytes(body), receive), send)
        finally:
            self._waiting -= 1
            self._held -= len(body)

    async def _read(self, receive: Receive, body: bytearray) -> None:
        """Read a request's body."""
        try:
            async with asyncio.timeout(self._seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refused(400, "the request broke off")
                    part = message.get("body", b"")
                    self._held += len(part)
                    body += part
                    more = message.get("more_body", False)
                    if len(body) > MOST_BYTES:
                        raise _Refused(413, _TOO_LARGE)
        except TimeoutError:
            raise _Refused(408, f"the request did not come whole within {self._seconds:.0f} s") from None


class _Refused(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        super().__init__(sentence)


def _look_over(body: bytes) -> None:
    """Raise `_Refused` for JSON that MLflow answers with 500."""
    try:
        json.loads(body, parse_int=_number, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise _Refused(400, "the JSON is nested too deeply") from None
    except ValueError:
        return  # no JSON: MLflow's own answer to that says where


def _number(text: str) -> float:
    if len(text) > _LONGEST_NUMBER:
        raise _Refused(400, f"a number of {len(text):,} digits")
    return 0.0


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body in one piece, then what comes after it."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _answer(send: Send, status: int, sentence: str) -> None:
    body = storage.canonical_json({"error_code": "BAD_REQUEST", "message": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if status in (408, 413):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 that closes a connection whose next request has not begun within ten to twenty seconds.

    uvicorn itself closes an idle connection, but waits for ever for the rest of a half-sent head.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self._watch, None)

    def _watch(self, seen: Any) -> None:
        """Close the connection if no request has begun since the last look; `seen`: the newest one then."""
        if self.transport.is_closing():
            return
        if self.cycle is seen and (seen is None or seen.response_complete):
            self.transport.abort()
        else:
            self.loop.call_later(HEAD_SECONDS, self._watch, self.cycle)
