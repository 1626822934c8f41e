"""`lexmill ui` serves both pages, once, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import psutil
import pytest

from lexmill.base.errors import RetryableError
from lexmill.commands import servers
from lexmill.commands.servers import serving
from tests.support.processes import pages

pytestmark = pytest.mark.e2e


def test_both_pages_are_served_and_end_with_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "conf" / "execution").mkdir(parents=True)
    (tmp_path / "conf" / "execution" / "local.yaml").write_text("{}\n")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "MLFLOW_"))}
    environment["HOME"] = str(tmp_path)
    with pages(tmp_path, environment, tmp_path / "output") as (served, said):
        addresses = re.findall(r"http://127\.0\.0\.1:\d+", said)
        assert len(addresses) == 2
        for page in addresses:
            with urllib.request.urlopen(page, timeout=60) as reply:
                assert reply.status == 200
        tree = psutil.Process(served.pid).children(recursive=True)
        assert not [one for one in tree if "mlflow.server.jobs" in " ".join(one.cmdline())]  # seven of 240 MB each
        command = [sys.executable, "-m", "lexmill.cli", "ui"]
        second = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert second.returncode == 75
        assert "already running" in second.stderr
        served.send_signal(signal.SIGINT)
        assert served.wait(timeout=60) == 0
        assert not [process for process in tree if process.is_running()]


def test_a_server_that_ends_while_starting_is_reported_by_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(RetryableError, match=r"calendar server ended while starting(.|\n)*unrecognized arguments"),
        serving("calendar", ("calendar", "--no-such"), 1, health="/", environment={}, root=tmp_path) as server,
    ):
        server.wait()


def test_two_that_start_at_once_take_two_ports() -> None:
    """A server binds its port seconds after it was chosen."""
    wanted = servers.free_port()
    with servers.own_port(wanted) as first, servers.own_port(wanted) as second:
        assert first == wanted
        assert second != first
    with servers.own_port(wanted) as again:
        assert again == wanted


def test_a_server_that_ended_is_not_up_because_another_answers(tmp_path: Path) -> None:
    other = HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    thread = threading.Thread(target=other.serve_forever, daemon=True)
    thread.start()
    try:
        (tmp_path / "log").write_text("address already in use\n")
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        url = f"http://127.0.0.1:{other.server_port}"
        with pytest.raises(RetryableError, match="address already in use"):
            servers.Server("mlflow", url, url, ended, tmp_path / "log").wait(5)
    finally:
        other.shutdown()
        other.server_close()
        thread.join()
