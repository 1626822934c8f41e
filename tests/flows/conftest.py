"""One Prefect server for the whole session, on a free port with a database of its own; tiny DVC projects to run."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.commands.servers import free_port, serving_prefect
from tests.support.once import init_repository
from tests.support.processes import Started
from tests.support.small_project import whole

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def prefect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("prefect")
    before = os.environ.pop("PREFECT_HOME", None)
    try:
        with serving_prefect(root, free_port()) as server:
            server.wait()
            yield server.url
    finally:
        if before is not None:
            os.environ["PREFECT_HOME"] = before


class Workspace:
    """A DVC project with params.yaml, and the flow run in it as a command."""

    def __init__(self, root: Path, url: str) -> None:
        self.root, self.url = root, url
        self.stages: dict[str, Any] = {}
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "LEXMILL_", "DVC_"))},
            "DVC_NO_ANALYTICS": "1",
            "CI": "1",
            "PYTHONPATH": str(PROJECT),
            "PREFECT_HOME": str(root / "prefect-home"),
            "PREFECT_RUNNER_POLL_FREQUENCY": "1",  # seconds, for 10
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            **{name: str(root.parent / name) for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR")},
        }
        init_repository(root)
        (root / "conf" / "execution").mkdir(parents=True)
        (root / "conf" / "execution" / "local.yaml").write_text("publish: false\n")
        params = whole({"experiment": "x", "data_seed": 1, "training_seed": 1})
        (root / "params.yaml").write_text(yaml.safe_dump(params))

    def stage(self, name: str, command: str, needs: tuple[str, ...] = ()) -> None:
        """One more stage; of `train@gpt` and `train@lstm` the later's command counts for both."""
        group, _, item = name.partition("@")
        body = {"cmd": command, "deps": [f"{need}.out" for need in needs], "outs": [f"{name}.out"]}
        if item:
            items = [*self.stages.get(group, {}).get("foreach", ()), item]
            body = {"foreach": items, "do": body | {"outs": [f"{group}@${{item}}.out"]}}
        self.stages[group] = body
        (self.root / "dvc.yaml").write_text(yaml.safe_dump({"stages": self.stages}))

    def start(self, *command: str, server: bool = True) -> Started:
        environment = {**self.environment, "PREFECT_API_URL": f"{self.url}/api"} if server else self.environment
        return Started(*command, root=self.root, environment=environment)

    def run(self, *command: str, server: bool = True) -> tuple[int, str]:
        """Exit code and all output."""
        with self.start(*(command or ("-m", "flows", "run")), server=server) as process:
            output, _ = process.communicate(timeout=300)
            return process.returncode, output

    def post(self, path: str, **body: Any) -> Any:
        """The server's answer to a request, as a page makes it."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def ask(self, what: str, **body: Any) -> list[dict[str, Any]]:
        """What a filter finds."""
        return list(self.post(f"{what}/filter", **({"sort": "ID_DESC", **body} if what != "logs" else body)))

    def runs(self, *states: str, **more: Any) -> list[dict[str, Any]]:
        """The flow runs that have begun, in one of these types of state (default any), the newest first; tests run one
        at a time.
        """
        filters = {"start_time": {"is_null_": False}, **more}
        if states:
            filters["state"] = {"type": {"any_": list(states)}}
        return self.ask("flow_runs", flow_runs=filters, sort="START_TIME_DESC")

    def flow_run(self, run: str) -> dict[str, Any]:
        """A flow run as the server knows it."""
        return self.ask("flow_runs", flow_runs={"id": {"any_": [run]}})[0]

    def state(self, run: str) -> str:
        """The name of a flow run's state."""
        return str(self.flow_run(run)["state_name"])

    def tasks(self, run: str) -> dict[str, dict[str, Any]]:
        """A flow run's tasks by name."""
        return {task["name"]: task for task in self.ask("task_runs", task_runs={"flow_run_id": {"any_": [run]}})}

    def artifacts(self, run: str) -> dict[str, dict[str, Any]]:
        """A flow run's artifacts by key; what Prefect keeps for itself has none."""
        found = self.ask("artifacts", artifacts={"flow_run_id": {"any_": [run]}})
        return {one["key"]: one for one in found if one["key"]}

    def cancel(self, run: str) -> None:
        """What the button of the page does."""
        answer = self.post(f"flow_runs/{run}/set_state", state={"type": "CANCELLING", "name": "Cancelling"})
        assert answer["status"] == "ACCEPT", answer


@pytest.fixture
def workspace(tmp_path: Path, prefect_url: str) -> Workspace:
    root = tmp_path / "workspace"
    root.mkdir()
    return Workspace(root, prefect_url)
