"""The experiments that DVC keeps in git are listed by name; its queues and what runs now are none."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lexmill.runner.experiments import Experiment, experiments


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    return subprocess.run(
        ["git", *who, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_experiments_are_listed_by_name(tmp_path: Path) -> None:
    assert experiments(tmp_path) == []  # no repository
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "start")
    start = git(tmp_path, "rev-parse", "HEAD")
    assert experiments(tmp_path) == []
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "made by an experiment")
    made = git(tmp_path, "rev-parse", "HEAD")
    for name in ("slow", "fast"):
        git(tmp_path, "update-ref", f"refs/exps/{start[:2]}/{start[2:]}/{name}", made)
    for none in ("exec/EXEC_HEAD", "stash", "celery/stash", "exec/EXEC_BRANCH"):
        git(tmp_path, "update-ref", f"refs/exps/{none}", made)
    assert experiments(tmp_path) == [Experiment("fast", made, start), Experiment("slow", made, start)]
