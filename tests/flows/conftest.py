"""One Prefect server for the whole session, on a free port with a database of its own; tiny DVC projects to run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.commands.servers import free_port, serving_prefect

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
            **{name: str(root.parent / name) for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR")},
        }
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], cwd=root, check=True, env=self.environment)
        (root / "conf" / "execution").mkdir(parents=True)
        (root / "conf" / "execution" / "local.yaml").write_text("publish: false\n")
        (root / "params.yaml").write_text(yaml.safe_dump({"experiment": "x", "data_seed": 1, "training_seed": 1}))

    def stage(self, name: str, command: str, needs: tuple[str, ...] = ()) -> None:
        self.stages[name] = {"cmd": command, "deps": [f"{need}.out" for need in needs], "outs": [f"{name}.out"]}
        (self.root / "dvc.yaml").write_text(yaml.safe_dump({"stages": self.stages}))

    def start(self, *command: str, server: bool = True) -> subprocess.Popen[str]:
        environment = {**self.environment, "PREFECT_API_URL": f"{self.url}/api"} if server else self.environment
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.root,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *command: str, server: bool = True) -> tuple[int, str]:
        """Exit code and all output."""
        with self.start(*(command or ("-m", "flows.pipeline", "run")), server=server) as process:
            output, _ = process.communicate(timeout=300)
            return process.returncode, output

    def ask(self, what: str, **body: Any) -> list[dict[str, Any]]:
        """The server's answer to a filter."""
        request = urllib.request.Request(
            f"{self.url}/api/{what}/filter",
            data=json.dumps({"sort": "ID_DESC", **body} if what != "logs" else body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return list(json.load(reply))


@pytest.fixture
def workspace(tmp_path: Path, prefect_url: str) -> Workspace:
    root = tmp_path / "workspace"
    root.mkdir()
    return Workspace(root, prefect_url)
