"""A server is away when a command begins: one sentence that names it, the right exit code, in time, no secret."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from typer.testing import CliRunner

from lexmill import cli
from lexmill.base.errors import EXIT_DONE, EXIT_RETRY, EXIT_USER, LexmillError
from lexmill.commands.servers import ask_prefect
from lexmill.params import parse
from lexmill.registry import package
from lexmill.tracking import reaching
from tests.registry.conftest import make
from tests.registry.plain import plain_params
from tests.tracking.test_spool import FIRST, run_pipeline, write_lock

from .proxy import Proxy

MOST_SECONDS = 60.0  # within 15 on a machine that does nothing else; four tests at once take their time
FAULTS = ("down", "reset", "hang", "401", "403", "429", "500", "cut")
# MLflow's commands; a version of a model, or the package, is asked for.
COMMANDS = {
    "champions": ["champions"],
    "promote": ["promote", "gpt", "1"],
    "rollback": ["rollback", "gpt"],
    "publish": ["publish"],
    "sync": ["sync"],
    "generate": ["generate", "ROMEO"],
    "serve": ["serve", "gpt"],
}
# What needs no server answers as ever.
WITHOUT = {"results": ["results"], "export": ["export", "gpt", "exported"]}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a package and a run that waits for MLflow; its own model is no champion anywhere."""
    root = tmp_path_factory.mktemp("away")
    choices = plain_params()
    make(parse(choices), root, "gpt")
    package.write(parse(choices), "gpt", root)
    (root / "params.yaml").write_text(yaml.safe_dump(choices))
    write_lock(root)
    run_pipeline(root, FIRST, {"prepare@plays": "ran"})
    return root


@pytest.fixture
def proxy(healthy: tuple[str, int]) -> Iterator[Proxy]:
    with Proxy(healthy) as made:
        yield made


@pytest.fixture(scope="module")
def healthy() -> Iterator[tuple[str, int]]:
    """A server that is in health and has nothing else to say."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield "127.0.0.1", server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fraction of the seconds that a server has to answer."""
    monkeypatch.setattr(reaching, "ANSWER_SECONDS", 0.3)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")


def outcome(arguments: list[str]) -> tuple[int, str]:
    """How a command ends and what it says, as `cli.main` does: any exception but ours is a traceback."""
    done = CliRunner().invoke(cli.app, arguments)
    error = done.exception
    if error is None or isinstance(error, SystemExit):
        return done.exit_code, done.output
    assert isinstance(error, LexmillError), repr(error)
    return error.exit_code, str(error)


class Asking:
    """Runs commands in the workspace, whose tracking server is the proxy."""

    def __init__(self, workspace: Path, proxy: Proxy) -> None:
        self.proxy = proxy
        (workspace / "conf/execution").mkdir(parents=True, exist_ok=True)
        settings = {"tracking_uri": f"http://me:hush@127.0.0.1:{proxy.port}"}
        (workspace / "conf/execution/local.yaml").write_text(yaml.safe_dump(settings))

    def away(self, name: str, fault: str, spare: str) -> None:
        """A command meets a server that fails, except for requests of `spare`."""
        self.proxy.fail(fault, spare=spare)
        began = time.monotonic()
        code, said = outcome(COMMANDS[name])
        assert time.monotonic() - began < MOST_SECONDS
        assert code == (EXIT_USER if fault in ("401", "403") else EXIT_RETRY), said
        assert self.proxy.injected or fault == "down"
        assert self.proxy.url in said
        assert "hush" not in said
        assert said.count("\n") <= 1, said


@pytest.fixture
def asking(workspace: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Asking:
    monkeypatch.chdir(workspace)
    return Asking(workspace, proxy)


# Each command with one fault, each fault with one command; all of both under `torture`.
SOME = [*zip(COMMANDS, FAULTS, strict=False), *(("champions", fault) for fault in FAULTS[1:])]


@pytest.mark.parametrize("spare", ["", "/health"])
@pytest.mark.parametrize(("name", "fault"), SOME)
@pytest.mark.usefixtures("_in_a_hurry")
def test_mlflow_is_away(asking: Asking, name: str, fault: str, spare: str) -> None:
    """All of it, or all but the question whether it is in health."""
    asking.away(name, fault, spare)


@pytest.mark.torture
@pytest.mark.parametrize("spare", ["", "/health"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_mlflow_is_away_for_every_command(asking: Asking, name: str, fault: str, spare: str) -> None:
    """With the seconds that it really has."""
    asking.away(name, fault, spare)


def test_a_server_that_hangs_is_left_in_time(asking: Asking) -> None:
    """With the seconds that it really has: in health, and silent to the first call, the slower of the two."""
    asking.away("champions", "hang", "/health")


@pytest.mark.parametrize("name", WITHOUT)
def test_what_needs_no_server_waits_for_none(asking: Asking, name: str) -> None:
    asking.proxy.fail("hang")
    code, said = outcome(WITHOUT[name])
    assert (code, asking.proxy.seen) == (EXIT_DONE, 0), said
    shutil.rmtree("exported", ignore_errors=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_prefect_is_away(proxy: Proxy, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked before it is imported, whose own errors are hard to read and come late."""
    monkeypatch.setattr("lexmill.commands.servers._ANSWER_SECONDS", 0.3)
    proxy.fail(fault)
    with pytest.raises(LexmillError, match=f"the Prefect server {proxy.url}/api ") as failed:
        ask_prefect(f"{proxy.url}/api")
    assert failed.value.exit_code == (EXIT_USER if fault in ("401", "403") else EXIT_RETRY)
    assert proxy.injected or fault == "down"
