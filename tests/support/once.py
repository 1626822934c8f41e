"""What is dear to make and not changed by any test is made once a run, by whichever worker of xdist asks first."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name` as `make` filled it; the workers that ask meanwhile wait.

    It is made in its place, for stores and workspaces hold absolute paths; what a failed `make` left is removed first.
    """
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, mark = root / name, root / f"{name}.made"
    with open(root / f"{name}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            mark.touch()
    return folder


@functools.cache
def _empty_repository() -> tempfile.TemporaryDirectory[str]:
    """A folder in which git and DVC were initialised; removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="lexmill-empty-repository-")
    home = {name: f"{folder.name}/home" for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR", "HOME")}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "GIT_"))}
    where = Path(folder.name) / "repository"
    where.mkdir()
    for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(command, cwd=where, check=True, env={**kept, **home, "DVC_NO_ANALYTICS": "1", "CI": "1"})
    return folder


def init_repository(root: Path) -> None:
    """What `git init` and `dvc init` leave in a folder: DVC's start of half a second is paid once a process."""
    shutil.copytree(Path(_empty_repository().name) / "repository", root, dirs_exist_ok=True)
