"""The state of a checkout: its commit, whether the work tree differs from it, and what dvc.lock records."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

from lexmill.base import storage

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class State:
    """A commit's full hash; `dirty`: a tracked file differs from it."""

    commit: str
    dirty: bool


def state(root: Path) -> State | None:
    """Return the state of the checkout of `root`; None without git, a repository or a commit."""
    commit = git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    return State(commit, bool(git(root, "status", "--porcelain", "--untracked-files=no")))


def git(root: Path, *arguments: str) -> str | None:
    """Return the output of a git command in the checkout of `root`; None where it fails or git is missing."""
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


def dvc_lock_digest(root: Path) -> str | None:
    """Return the sha256 of dvc.lock's canonical JSON; None where the file is missing or unreadable.

    DVC writes the stages in the order in which they finished, so files of equal states differ in their bytes; here the
    keys are sorted. Cost: one parse, some 10 ms for fifty stages.
    """
    try:
        text = (root / "dvc.lock").read_text(encoding="utf-8", errors="replace")
        found = yaml.load(text, Loader=_LOADER)
    except (FileNotFoundError, yaml.YAMLError):
        return None
    # A date among the params is no JSON, and a key may be a number.
    return storage.fingerprint(json.loads(json.dumps(found, default=str)))
