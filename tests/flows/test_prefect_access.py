"""A Prefect server that the user has set is asked before Prefect is imported, and its refusal is a sentence."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lexmill.base.errors import RetryableError, UserError
from lexmill.commands.servers import ask_prefect, configured_prefect, free_port

LOGIN = "team:a password"


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """An API that lets `LOGIN` in, or the key `k`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = (f"Basic {base64.b64encode(LOGIN.encode()).decode()}", "Bearer k")
            known = self.path == "/api/admin/version"
            self.send_response((200 if self.headers["Authorization"] in allowed else 401) if known else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    for name in ("PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING", "PREFECT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/api"
    server.shutdown()
    server.server_close()
    thread.join()


def test_who_it_knows_gets_in(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"refuses us \(HTTP 401\); set PREFECT_API_AUTH_STRING"):
        ask_prefect(url)
    (tmp_path / "profiles.toml").write_text(
        f'active = "ours"\n[profiles.ours]\nPREFECT_API_URL = "{url}"\nPREFECT_API_AUTH_STRING = "{LOGIN}"\n'
    )
    assert configured_prefect() == url
    ask_prefect(url)
    ask_prefect(f"{url}/")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "team:another")  # the environment goes first
    with pytest.raises(UserError) as refused:
        ask_prefect(url)
    assert "another" not in str(refused.value)
    monkeypatch.setenv("PREFECT_API_KEY", "k")
    ask_prefect(url)


def test_where_a_gateway_wants_more_prefect_itself_is_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_CLIENT_CUSTOM_HEADERS", '{"X-Token": "..."}')
    ask_prefect(url)


def test_nobody_there_is_worth_another_try(url: str) -> None:
    with pytest.raises(RetryableError, match="does not answer"):
        ask_prefect(f"http://127.0.0.1:{free_port()}/api")
    with pytest.raises(UserError, match="PREFECT_API_URL: 'server:4200' is no address"):
        ask_prefect("server:4200")
