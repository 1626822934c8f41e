"""The git checkout that a run is made from: its commit, and whether the work tree differs from it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class State:
    """A commit's full hash; `dirty`: a tracked file differs from it."""

    commit: str
    dirty: bool


def state(root: Path) -> State | None:
    """The state of the checkout that holds `root`; None where there is no git, no repository or no commit yet."""
    commit = git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    return State(commit, bool(git(root, "status", "--porcelain", "--untracked-files=no")))


def git(root: Path, *arguments: str) -> str | None:
    """What a git command prints about the checkout that holds `root`; None where it fails or there is no git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
