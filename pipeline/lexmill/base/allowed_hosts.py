"""A gate in front of a web application: only requests that name one of its hosts pass.

A page of another site can make a browser send requests to servers of this machine: under a name of its own that it lets
point here (DNS rebinding: the Host header has that name), or straight to 127.0.0.1 (the Origin header has that site's
name). Neither can be forged by a page. Programs send no Origin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class AllowedHosts:
    """An ASGI application that answers 403 to requests for, or from pages of, other hosts.

    Args:
        app: the application behind it.
        hosts: names and addresses, without port.
    """

    def __init__(self, app: App, hosts: Iterable[str]) -> None:
        self._app, self._hosts = app, {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._allows(scope["headers"]):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            body = b"this server does not answer to that name\n"
            headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    def _allows(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        found = [(name, value.decode("latin-1")) for name, value in headers]
        hosts = [f"//{value}" for name, value in found if name == b"host"]
        origins = [value for name, value in found if name == b"origin"]
        return bool(hosts) and all(_host(address) in self._hosts for address in [*hosts, *origins])


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""
