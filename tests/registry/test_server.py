"""The same against a real tracking server on loopback, which keeps the files itself."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lexmill.base.answering import answers
from lexmill.base.errors import RetryableError
from lexmill.commands.servers import free_port
from lexmill.compute.execution import Execution
from lexmill.params import Params
from lexmill.registry import champion, listing, lookup, package, use
from lexmill.registry.loader import load_package
from lexmill.registry.publish import publish_all
from lexmill.tracking.store import opened
from tests.support.waiting import wait_for

from .conftest import make


@pytest.fixture
def server(root: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", "sqlite:///mlflow.db", "--artifacts-destination", "files", "--workers", "1"]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with open(root / "server.log", "wb") as log:
        process = subprocess.Popen(
            command, cwd=root, env={**os.environ, **quiet}, stdout=log, stderr=log, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: answers(f"{address}/health") or process.poll() is not None)
        assert process.poll() is None, (root / "server.log").read_text()
        yield address, process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.e2e
def test_publish_promote_use_and_an_outage(
    server: tuple[str, subprocess.Popen[bytes]], params: Params, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address, process = server
    execution = Execution(tracking_uri=address)
    here = tmp_path / "here"

    def publish(quality: float, seed: int) -> str:
        make(params, here, "en_de", quality, seed)
        package.write(params, "en_de", here)
        said: list[str] = []
        publish_all(params, execution, said.append, here)
        assert [line for line in said if address in line] == said[-1:]
        assert said[-1].startswith(f"runs: {address}/#/experiments/")
        return next(line for line in said if line.startswith("en_de: "))

    assert publish(0.5, 0) == "en_de: version 1 is the champion: the first version"
    assert publish(0.1, 1).startswith("en_de: version 2 does not replace the champion: worse: bleu")
    assert publish(0.9, 2).startswith("en_de: version 3 is the champion: better: bleu")
    assert publish(0.9, 2) == "en_de: already version 3 (champion)"
    answer = load_package(here / "artifacts/packages/en_de").predict(["Good day"])
    printed = capfd.readouterr()
    assert printed.out == ""  # MLflow's own links
    assert not any(word in printed.err for word in ("View run", "View experiment", "Successfully registered", address))

    with opened(address, here) as client:
        assert champion.rollback(client, here, "en_de", "") == champion.Move("en_de", "1", "3")
        assert champion.promote(client, here, "en_de", "3", "") == champion.Move("en_de", "3", "1")
        assert [row["champion"] for row in listing.champions(client)] == ["3"]
        assert [row["version"] for row in listing.versions(client, "en_de")] == ["3", "2", "1"]

    assert publish(0.5, 0) == "en_de: already version 1"
    assert use.open_model(None, "translator", params, execution, here).predict(["Good day"]) == answer
    assert lookup.champion(address, "nobody", here) is None

    _end(process)
    make(params, here, "en_de", 0.95, 4)
    package.write(params, "en_de", here)
    with pytest.raises(RetryableError, match="does not answer"):
        publish_all(params, execution, print, here)
    shutil.rmtree(here / "artifacts")
    with pytest.raises(RetryableError, match="does not answer"):
        use.open_model(None, "translator", params, execution, here)
