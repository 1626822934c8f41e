"""What we stand on reports to nobody: the words that switch it off stand in the environment of all that we start."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lexmill.base.quiet import quieten
from lexmill.commands import servers

SWITCHES = {
    "DO_NOT_TRACK": "true",  # Prefect's clients, MLflow, the Hugging Face libraries
    "DVC_NO_ANALYTICS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
FREE = {key: value for key, value in os.environ.items() if key not in SWITCHES}
TELL = "import json, os; print(json.dumps(dict(os.environ)))"

STAGE = f"""
import subprocess, sys
from lexmill.compute import execution
from lexmill.stages import entry
entry.preflight = execution.Execution
def main(key):
    subprocess.run([sys.executable, "-c", {TELL!r}], check=True)
entry.run_stage(main)
"""
# Prefect reads its settings once, when it is imported.
FLOW = f"""
import sys
import flows.__main__ as door
def tell(options):
    assert not {{"prefect", "mlflow", "dvc"}} & sys.modules.keys()
    exec({TELL!r})
door._run = tell
door.main(["run"])
"""


def settings_in(text: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(text)
    return {name: found.get(name, "") for name in SWITCHES}


@pytest.mark.parametrize("script", [STAGE, FLOW], ids=["what a stage starts", "the flow"])
def test_a_door_switches_it_off_before_anything_is_imported(tmp_path: Path, script: str) -> None:
    (tmp_path / "door.py").write_text(script, encoding="utf-8")
    environment = {**FREE, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "door.py", *(["key"] if script == STAGE else [])]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert settings_in(done.stdout) == SWITCHES


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    (tmp_path / "door.py").write_text(STAGE, encoding="utf-8")
    environment = {**FREE, "DO_NOT_TRACK": "false"}
    done = subprocess.run(
        [sys.executable, "door.py", "key"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert settings_in(done.stdout) == {**SWITCHES, "DO_NOT_TRACK": "false"}


def test_so_it_is_for_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tell.py").write_text(TELL, encoding="utf-8")
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    with servers.serving("tell", ("tell",), 1, health="/", environment=path, root=tmp_path) as server:
        server.process.wait(60)
    assert settings_in(server.log.read_text(encoding="utf-8")) == SWITCHES


def test_the_pages_are_served_here_alone_and_mlflows_without_job_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven of 240 MB each, for features that nothing here uses."""
    seen: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {}

    class Silent:
        url = "http://127.0.0.1:9"
        process: Any = type("Process", (), {"pid": 1})

    @contextmanager
    def noted(name: str, command: tuple[str, ...], _port: int, *, environment: Any, **_: Any) -> Iterator[Silent]:
        seen[name] = command, dict(environment)
        yield Silent()

    monkeypatch.setattr(servers, "serving", noted)
    with servers.serving_mlflow("sqlite:////x.db", tmp_path, 9), servers.serving_prefect(tmp_path, 9):
        pass
    assert seen["mlflow"][1]["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    # An address with a password would be in the list of processes, which every user sees.
    assert seen["mlflow"][1]["MLFLOW_BACKEND_STORE_URI"] == "sqlite:////x.db"
    assert "sqlite:////x.db" not in seen["mlflow"][0]
    for command, _ in seen.values():
        assert command[command.index("--host") + 1] == "127.0.0.1"


def test_warnings_of_libraries_are_printed_as_ours_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging, "lastResort", logging.lastResort)
        quieten()
        alone = logging.getLogger("made_library")
        patch.setattr(alone, "propagate", False)  # pytest listens at the root
        alone.warning("401 from %s \x1b[2J", "https://me:hush@host/a?sig=hush")
    assert capsys.readouterr().err == "401 from https://host/a?sig=*** \\x1b[2J\n"
