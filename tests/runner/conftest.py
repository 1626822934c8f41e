"""A tiny DVC project in a folder of its own, whose stages are one-line Python commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.runner.display import Display
from lexmill.runner.session import Session, open_session, run_all
from tests.support.once import init_repository


@pytest.fixture(autouse=True)
def _quiet(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("dvc-home")
    for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR", "DVC_SYSTEM_CONFIG_DIR"):
        monkeypatch.setenv(name, str(folder / name))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    monkeypatch.setenv("CI", "1")  # no look for a newer DVC
    monkeypatch.delenv("LEXMILL_RUN", raising=False)
    monkeypatch.delenv("DVC_STAGE", raising=False)


class Project:
    """A workspace with a dvc.yaml of small commands."""

    def __init__(self, root: Path) -> None:
        self.root = root
        init_repository(root)
        self.stages: dict[str, Any] = {}

    def stage(self, name: str, code: str, needs: tuple[str, ...] = (), **more: Any) -> None:
        """A stage that runs `code` with `write(text)` for its output `name.out`."""
        script = f"from pathlib import Path; write = Path('{name}.out').write_text\n{code}\n"
        (self.root / f"{name}.py").write_text(script)
        self.stages[name] = {
            "cmd": f"{sys.executable} {name}.py",
            "deps": [f"{name}.py", *(f"{other}.out" for other in needs)],
            "outs": [f"{name}.out"],
            **more,
        }
        self.save()

    def save(self) -> None:
        (self.root / "dvc.yaml").write_text(yaml.safe_dump({"stages": self.stages}, sort_keys=False))

    def run(self, *targets: str, jobs: int = 2) -> Session:
        with open_session(targets, root=self.root, jobs=jobs, display=Display()) as session:
            run_all(session)
        return session

    def text(self, name: str) -> str:
        return (self.root / f"{name}.out").read_text()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "a project"  # with a space, on purpose
    root.mkdir()
    return Project(root)


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start processes that do not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def start(command: list[str], **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, text=True, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
