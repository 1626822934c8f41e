"""`lexmill run --worktree NAME`: beside a run that holds the workspace, with a shared cache, and back again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base import workspace
from tests.support.small_project import SmallProject
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

RUN = ("-m", "lexmill.cli", "run")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, encoded: SmallProject) -> SmallProject:
    """A workspace that was run and committed."""
    project = encoded.copy(tmp_path_factory.mktemp("worktree") / "a project")
    project.write_execution()
    project.run(*RUN)
    project.commit("results")
    return project


@pytest.fixture
def project(done: SmallProject) -> Any:
    yield done
    for name in ("aside", "other"):
        subprocess.run(["git", "worktree", "remove", "--force", str(beside(done, name))], cwd=done.root, check=False)
        subprocess.run(["git", "branch", "-D", f"run/{name}"], cwd=done.root, check=False)
    done.git("checkout", "--quiet", "--", ".")


def beside(project: SmallProject, name: str = "aside") -> Path:
    return project.root / ".lexmill" / "worktrees" / name


def test_beside_a_run_that_holds_the_workspace(project: SmallProject) -> None:
    """Params from the working tree, everything else from HEAD; what HEAD made comes from the shared cache."""
    project.write_params(steps=9)
    with workspace.run_lock("another run", project.root):
        refused = project.run(*RUN, code=75)
        assert "in use by another run" in refused
        said = project.run(*RUN, "train", "--worktree", "aside", "--params")
    folder = beside(project)
    assert "worktree aside made from" in said
    assert "stages: 1 ran, 4 unchanged" in said
    assert "on the branch run/aside" in said
    assert (project.root / "params.yaml").read_text() != project.git("show", "HEAD:params.yaml")
    lock = yaml.safe_load((folder / "dvc.lock").read_text())["stages"]["train@toy"]
    assert lock["params"]["params.yaml"]["models.toy"]["recipe"]["length"] == "9 steps"
    assert project.git("status", "--porcelain").strip() == "M params.yaml"  # nothing of the run is here
    assert not (folder / ".dvc" / "cache").exists()

    # The second time it goes on in the same place and has nothing to do.
    said = project.run(*RUN, "--worktree", "aside")
    assert "worktree aside continues from" in said
    assert "not in the worktree, since they are not committed: params.yaml; --params takes params.yaml along" in said
    assert "5 stages unchanged, nothing to run" in said

    # The way back that it names.
    project.git("checkout", "--quiet", "--", "params.yaml")
    lines = [line.strip() for line in said.split("\n")]
    start = next(i for i, line in enumerate(lines) if line.startswith("take them over: "))
    commands = f"{lines[start]} {lines[start + 1]}".removeprefix("take them over: ")
    subprocess.run(["sh", "-c", commands], cwd=project.root, env=project.environment, check=True, capture_output=True)
    assert "5 stages unchanged, nothing to run" in project.run(*RUN)
    project.git("reset", "--quiet", "--hard", "HEAD~1")
    removal = next(line for line in lines if line.startswith("remove it:")).removeprefix("remove it:")
    subprocess.run(["sh", "-c", removal], cwd=project.root, env=project.environment, check=True, capture_output=True)
    assert not folder.exists()
    assert project.git("branch", "--list", "run/*") == ""
    project.run("-m", "dvc", "checkout", "--quiet")


def test_a_stop_ends_it_and_kill_9_leaves_nothing(project: SmallProject) -> None:
    project.write_params(steps=100_000)
    folder = beside(project, "other")
    log = workspace.log_path("train@toy", folder)
    for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        with project.start(*RUN, "--worktree", "other", "--params") as process:
            wait_for(lambda: (folder / ".lexmill" / "checkpoints").exists() and log.exists())
            process.send_signal(number)
            said, _ = process.communicate(timeout=120)
            assert process.returncode == code, said
        with workspace.run_lock(root=folder, wait_seconds=60):
            assert (folder / "dvc.lock").read_text() == project.git("show", "HEAD:dvc.lock")


@pytest.mark.parametrize("name", ["a b", "../x", "", "x.lock", "-x", "a..b"])
def test_names_that_are_none(project: SmallProject, name: str) -> None:
    assert "make a name" in project.run(*RUN, f"--worktree={name}", code=2)


def test_what_stands_in_the_way_is_reported(project: SmallProject, tmp_path: Path) -> None:
    project.git("branch", "run/aside")
    assert "there is a branch run/aside already" in project.run(*RUN, "--worktree", "aside", code=2)
    assert "it needs --worktree" in project.run(*RUN, "--params", code=2)
    bare = SmallProject(tmp_path / "new")
    assert "needs a git repository with a commit" in bare.run(*RUN, "--worktree", "aside", code=2)


def test_a_workspace_runs_its_own_code_though_another_is_installed(tmp_path: Path) -> None:
    """A worktree has the first one's Python: DVC would hash the code here and run the code there."""
    project = SmallProject(tmp_path / "own")
    own = project.root / "pipeline"
    for room in ("base", "stages"):
        (own / "lexmill" / room).mkdir(parents=True)
    for file in ("__init__.py", "base/__init__.py", "base/workspace.py", "stages/__init__.py"):
        (own / "lexmill" / file).write_text("")
    (own / "lexmill" / "stages" / "fetch.py").write_text("import sys; print('our own code', sys.argv[1:])")
    said = project.run("-m", "lexmill.stages.fetch", "rows", PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    assert said == "our own code ['rows']\n"
