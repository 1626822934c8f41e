"""Requests for another host, and from pages of another site, do not reach the application."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from lexmill.base.allowed_hosts import LOOPBACK, AllowedHosts


async def page(_: Any) -> PlainTextResponse:
    return PlainTextResponse("secret")


async def socket(one: WebSocket) -> None:
    await one.accept()
    await one.send_text("secret")
    await one.close()


@pytest.fixture
def client() -> TestClient:
    app = Starlette(routes=[Route("/", page), WebSocketRoute("/socket", socket)])
    return TestClient(AllowedHosts(app, (*LOOPBACK, "Mill.example")))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:4200", "LOCALHOST:1", "[::1]:80", "mill.example"])
def test_its_own_names_pass(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host, "origin": "http://127.0.0.1:9"}).text == "secret"
    with client.websocket_connect("/socket", headers={"host": host}) as one:
        assert one.receive_text() == "secret"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:4200"},
        {"host": "evil.example@127.0.0.1.x"},
        {"host": "[bad"},
        {"host": ""},
        {"host": "127.0.0.1", "origin": "http://evil.example"},
        {"host": "127.0.0.1", "origin": "null"},
    ],
)
def test_others_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.get("/", headers=headers)
    assert answer.status_code == 403
    assert "secret" not in answer.text
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/socket", headers=headers):
        pass
