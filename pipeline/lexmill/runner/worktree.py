"""Worktrees for concurrent runs: a second workspace of the repository with its own locks and a shared cache.

    .lexmill/worktrees/<name>/          a git worktree on the branch run/<name>, made from HEAD
        .lexmill/worktree.json          its name, and the workspace it was made from
        .dvc/config.local               that workspace's, with its cache

Python, packages and execution settings are those of the first workspace; code, params and dvc.lock are the worktree's
own. Cost: a second copy of the work tree, and what DVC links or copies from its cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lexmill.base import workspace
from lexmill.base.errors import UserError
from lexmill.base.quiet import quieten
from lexmill.corpora.fetching import pins

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_TAKEN = ("params.yaml", "dvc.yaml", pins.FILE)
_RESULTS = ("dvc.lock", "code.json", "metrics/", "reports/")
_SHOWN = 5


def prepare(name: str, root: Path, note: Callable[[str], None], *, take_params: bool) -> Path:
    """Make the worktree of that name, or reuse it; return its folder.

    Args:
        name: a short name; the branch is `run/<name>`.
        root: the workspace, the top folder of its repository.
        note: called with messages for the user.
        take_params: copy the present params.yaml, dvc.yaml and source pins.

    Raises:
        UserError: a bad name, no repository, no commit, or the branch exists already.
    """
    root = root.resolve()
    if _NAME.fullmatch(name) is None or name.endswith(".lock"):
        raise UserError(f"--worktree {name}: letters, digits, '-', '_' and dots between them make a name")
    if (main := workspace.main_root(root)) is not None:
        raise UserError(f"this is a worktree itself; run it in {main}")
    _check_repository(root)
    folder, branch = root / workspace.HOME / "worktrees" / name, f"run/{name}"
    head = _git(root, "rev-parse", "--short", "HEAD").strip()
    if (folder / ".git").exists():
        made_from = _git(folder, "rev-parse", "--short", "HEAD").strip()
        note(f"worktree {name} continues from {made_from}" + (f" (HEAD is {head})" if made_from != head else ""))
    else:
        _git(root, "worktree", "prune")
        if _git(root, "branch", "--list", branch).strip():
            raise UserError(f"--worktree {name}: there is a branch {branch} already; take another name, or delete it")
        _git(root, "worktree", "add", "--quiet", "-b", branch, str(folder), "HEAD")
        workspace.mark_worktree(folder, name, root)
        _share_cache(root, folder)
        note(f"worktree {name} made from {head}: {folder.relative_to(root)}")
        _dvc(folder, "checkout", "--quiet", "--allow-missing")
    if take_params:
        for file in _TAKEN:
            if (root / file).is_file():
                shutil.copy2(root / file, folder / file)
    _tell_left_out(root, note, take_params)
    return folder


def command_in(folder: Path, root: Path, arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment of `lexmill run` in a worktree: its own code, this Python and settings."""
    from lexmill.compute.execution import settings_file

    environment = os.environ | code_first(folder) | {"LEXMILL_EXECUTION": str(settings_file(root).resolve())}
    return [sys.executable, "-m", "lexmill.cli", "run", *arguments], environment


def code_first(folder: Path) -> dict[str, str]:
    """Return the environment in which Python finds a workspace's code before an installed one."""
    places = [str(folder / "pipeline"), str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(places)}


def farewell(root: Path) -> str:
    """Say what to do with a worktree's results; empty for any other workspace."""
    main = workspace.main_root(root)
    if main is None:
        return ""
    name, place = root.name, root.relative_to(main).as_posix()
    return (
        f"the results are in {place}, on the branch run/{name}; from {main}:\n"
        f"  take them over: git -C {place} add --all && git -C {place} commit -m 'Run {name}' &&\n"
        f"                  git merge run/{name} && dvc checkout\n"
        f"  remove it:      git worktree remove --force {place} && git branch -D run/{name}"
    )


def _check_repository(root: Path) -> None:
    try:
        top = Path(_git(root, "rev-parse", "--show-toplevel").strip())
        _git(root, "rev-parse", "--verify", "HEAD")
    except UserError as error:
        raise UserError(f"--worktree needs a git repository with a commit ({error})", root) from None
    if top.resolve() != root:
        raise UserError(f"--worktree works in the top folder of a repository, and that is {top}", root)


def _share_cache(root: Path, folder: Path) -> None:
    quieten()
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        cache = repo.cache.local_cache_dir
    local = root / ".dvc" / "config.local"
    if local.is_file():
        shutil.copy2(local, folder / ".dvc" / "config.local")
    _dvc(folder, "config", "--local", "cache.dir", str(cache))


def _tell_left_out(root: Path, note: Callable[[str], None], take_params: bool) -> None:
    """Report the uncommitted changes that the worktree lacks."""
    listed = iter(_git(root, "status", "--porcelain", "-z", "--untracked-files=no").split("\0"))
    changed = []
    for entry in filter(None, listed):
        changed.append(entry[3:])
        if "R" in entry[:2] or "C" in entry[:2]:
            next(listed)  # the old name
    missing = [path for path in changed if not path.startswith(_RESULTS) and not (take_params and path in _TAKEN)]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        hint = "; --params takes params.yaml along" if "params.yaml" in missing else ""
        note(f"not in the worktree, since they are not committed: {', '.join(missing[:_SHOWN])}{more}{hint}")


def _git(folder: Path, *words: str) -> str:
    return _run(["git", *words], folder)


def _dvc(folder: Path, *words: str) -> str:
    return _run([sys.executable, "-P", "-m", "dvc", *words], folder)


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | code_first(folder) if "dvc" in command else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is not installed") from None
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip()).split("\n")[-1]
        raise UserError(f"{' '.join(command[:3])}: {output}", folder)
    return done.stdout
