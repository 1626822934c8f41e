"""Prefect's server goes away while the flow runs: the stages finish, one sentence says so, and the next run goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lexmill.base.errors import EXIT_DONE, EXIT_RETRY
from lexmill.commands.servers import free_port, serving_prefect
from tests.flows.conftest import PROJECT, Workspace
from tests.support.waiting import wait_for

from .proxy import Proxy

pytestmark = pytest.mark.e2e

MOST_SECONDS = 90.0  # within 15 on a machine that does nothing else, 30 where it hangs


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with serving_prefect(tmp_path_factory.mktemp("prefect"), free_port()) as server:
        server.wait()
        with Proxy(("127.0.0.1", int(server.url.rpartition(":")[2]))) as made:
            yield made


@pytest.fixture
def workspace(tmp_path: Path, proxy: Proxy) -> Workspace:
    root = tmp_path / "workspace"
    root.mkdir()
    made = Workspace(root, proxy.url)
    made.environment["PYTHONPATH"] = f"{PROJECT / 'pipeline'}:{PROJECT}"
    made.stage("first", "touch begun; while [ ! -e go ]; do sleep 0.1; done; echo 1 > first.out")
    made.stage("second", "echo 2 > second.out; touch over", ("first",))
    proxy.heal()
    return made


def goes_away(workspace: Workspace, proxy: Proxy, fault: str) -> None:
    with workspace.start("-m", "flows", "run") as flow:
        wait_for((workspace.root / "begun").exists)
        proxy.fail(fault)
        (workspace.root / "go").touch()
        wait_for((workspace.root / "over").exists)
        began = time.monotonic()
        said, _ = flow.communicate(timeout=120)
        assert time.monotonic() - began < MOST_SECONDS
    assert flow.returncode == EXIT_RETRY, said
    assert proxy.injected or fault == "down"
    assert f"the Prefect server {proxy.url}/api has failed (" in said
    assert "what is done is kept, and the next run continues" in said
    assert "Traceback" not in said
    assert (workspace.root / "second.out").read_text() == "2\n"
    proxy.heal()
    code, said = workspace.run()
    assert (code, "2 stages unchanged, nothing to run" in said) == (EXIT_DONE, True), said


def test_a_server_that_fails_during_the_flow(workspace: Workspace, proxy: Proxy) -> None:
    goes_away(workspace, proxy, "500")


@pytest.mark.torture
@pytest.mark.parametrize("fault", ["down", "reset", "hang", "401", "403", "lose", "cut"])
def test_however_the_server_fails_during_the_flow(workspace: Workspace, proxy: Proxy, fault: str) -> None:
    goes_away(workspace, proxy, fault)
