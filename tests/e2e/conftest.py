"""A clone of the project, with the `smoke` choices and an index on loopback that serves made packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.once import made_once
from tests.support.package_index import PackageIndex
from tests.support.processes import Started

ROOT = Path(__file__).resolve().parents[2]
OURS = ("LEXMILL_", "DVC_", "PREFECT_", "MLFLOW_", "PIP_", "npm_", "XDG_")


class Project:
    """A workspace of its own: files, home and environment; nothing of the machine's user is seen."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.root = root
        home = root.parent / "home"
        home.mkdir(exist_ok=True)
        # One thread: two would fight with whatever else the machine does, and be many times slower than one.
        execution = root.parent / "one-thread.yaml"
        execution.write_text("accelerator: cpu\nthreads: 1\n")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        self.environment = {
            **kept,
            **environment,
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{root / 'pipeline'}{os.pathsep}{root}",
            "LEXMILL_EXECUTION": str(execution),
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(root.parent / "dvc-site"),
            "GIT_AUTHOR_NAME": "test",
            "GIT_AUTHOR_EMAIL": "test@localhost",
            "GIT_COMMITTER_NAME": "test",
            "GIT_COMMITTER_EMAIL": "test@localhost",
        }

    def start(self, *command: str, **environment: str) -> Started:
        """Start `python command...` in the workspace."""
        environment = self.environment | environment
        return Started(*command, root=self.root, environment=environment, stderr=subprocess.PIPE)

    def run(
        self, *command: str, code: int = 0, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `python command...` to its end and hold it to its exit code."""
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.root,
            env=self.environment | environment,
            text=True,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=2400,
        )
        assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def lexmill(self, *arguments: str, code: int = 0, stdin: str = "", **environment: str) -> str:
        """What `lexmill ...` prints on standard output."""
        return self.run("-m", "lexmill.cli", *arguments, code=code, stdin=stdin, **environment).stdout

    def git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=self.root, env=self.environment, check=True, capture_output=True, text=True
        ).stdout


def copy_project(root: Path) -> None:
    """The project's own files as they stand, committed in a repository of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, root / name)


def new_project(folder: Path, environment: dict[str, str], overrides: list[str]) -> Project:
    """A committed workspace in `folder` (a path with a space in it) with the smoke choices."""
    root = folder / "a project"
    root.mkdir()
    copy_project(root)
    project = Project(root, environment)
    project.git("init", "-q")
    project.lexmill("compose", "experiment=smoke", *overrides)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "start")
    return project


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory, package_index: tuple[PackageIndex, list[str]]) -> Project:
    """The workspace after one run of the whole DAG through the Prefect flow."""
    index, overrides = package_index
    made: list[Project] = []

    def run(folder: Path) -> None:
        project = new_project(folder, index.environment(), overrides)
        project.run("-m", "flows", "run")
        shutil.copytree(project.root, folder / "kept", symlinks=True)
        made.append(project)

    folder = made_once(tmp_path_factory, "smoke", run)
    if made:
        return made[0]
    # Another worker ran it, and its tests change what they find.
    root = tmp_path_factory.mktemp("smoke") / "a project"
    shutil.copytree(folder / "kept", root, symlinks=True)
    return Project(root, index.environment())
