"""The workspace's own small files: locks, and the status and log of each stage.

    .lexmill/run.lock          one run at a time (flock); holds who and since when
    .lexmill/locks/<stage>     one process a stage at a time
    .lexmill/status/<stage>.json   the stage's exit code and message
    .lexmill/logs/<stage>.log  its output
    .lexmill/worktree.json     in a worktree: its name and the workspace it came from

A run (`lexmill run`, the flow) holds run.lock exclusively and passes its token to its stages; stages started by plain
`dvc repro` share it. flock's locks end with their processes, however those end.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from lexmill.base import storage
from lexmill.base.errors import RetryableError, UserError

HOME = Path(".lexmill")
TOKEN_VARIABLE = "LEXMILL_RUN"
_POLL_SECONDS = 0.1


def mark_worktree(folder: Path, name: str, main: Path) -> None:
    """Record that a workspace is a worktree of another one."""
    storage.write_json(folder / HOME / "worktree.json", {"name": name, "main": str(main)})


def main_root(root: Path = Path()) -> Path | None:
    """Return the workspace that this worktree was made from; None where it is no worktree of ours."""
    try:
        return Path(storage.read_json(root / HOME / "worktree.json")["main"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def run_own_code() -> None:
    """Restart this command where it runs another workspace's code than the present folder's.

    Worktrees and clones may share a Python in which one of them is installed: DVC would hash these files but run those.
    """
    own, running = Path("pipeline", "lexmill"), Path(__file__).parent.parent
    if not (own / "base" / "workspace.py").is_file() or own.resolve() == running.resolve():
        return
    place = str(own.parent.resolve())
    before = os.environ.get("PYTHONPATH", "")
    if before.split(os.pathsep)[0] == place:
        raise UserError(f"Python runs the code of {running}, though PYTHONPATH begins with this", place)
    path = os.pathsep.join(filter(None, [place, before]))
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"PYTHONPATH": path})


@contextmanager
def publishing(root: Path = Path(), wait_seconds: float = 600.0) -> Iterator[None]:
    """Hold the registry of a workspace and its worktrees; raise `RetryableError` after `wait_seconds`."""
    with _open((main_root(root) or root) / HOME / "locks" / "publish") as stream:
        if not _take(stream, fcntl.LOCK_EX, wait_seconds):
            raise RetryableError(f"the registry is in use by {_describe(_read_holder(stream))}; try again")
        _write_holder(stream, "publish", "")
        yield


def file_name(stage: str) -> str:
    """Turn a stage's address (`train@gpt`, `sub/dvc.yaml:x`) into a file name."""
    return "".join(c if c.isalnum() or c in "@._-" else "+" for c in stage)


def status_path(stage: str, root: Path = Path()) -> Path:
    return root / HOME / "status" / f"{file_name(stage)}.json"


def log_path(stage: str, root: Path = Path()) -> Path:
    return root / HOME / "logs" / f"{file_name(stage)}.log"


def write_status(stage: str, code: int, message: str, root: Path = Path()) -> None:
    storage.write_json(status_path(stage, root), {"stage": stage, "code": code, "message": message})


def read_status(stage: str, root: Path = Path()) -> tuple[int, str] | None:
    """Return the exit code and message the stage left; None where it left none."""
    try:
        status = storage.read_json(status_path(stage, root))
        return int(status["code"]), str(status["message"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError):
        return None


def clear_status(stage: str, root: Path = Path()) -> None:
    status_path(stage, root).unlink(missing_ok=True)


def _read_holder(stream: IO[str]) -> dict[str, Any]:
    stream.seek(0)
    try:
        holder = storage.from_json(stream.read() or "{}")
    except ValueError:
        return {}  # caught between truncation and writing
    return holder if isinstance(holder, dict) else {}


def _write_holder(stream: IO[str], what: str, token: str) -> None:
    holder = {
        "what": what,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "token": token,
    }
    stream.seek(0)
    stream.truncate()
    stream.write(json.dumps(holder))
    stream.flush()


def _describe(holder: dict[str, Any]) -> str:
    if not {"what", "pid", "host", "since"} <= holder.keys():
        return "another process"
    return f"{holder['what']} (process {holder['pid']} on {holder['host']}, since {holder['since']})"


def _open(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "a+", encoding="utf-8")


def _take(stream: IO[str], how: int, wait_seconds: float) -> bool:
    deadline = time.monotonic() + wait_seconds
    while True:
        if storage.try_lock(stream, how):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)


class RunLock:
    """A held workspace: `token` for its stages' environment, `descriptor` for a supervisor, `what` for messages.

    It lasts until all processes with the descriptor are gone, so a new run waits for the tree of a killed one.
    """

    def __init__(self, stream: IO[str], token: str, what: str) -> None:
        self._stream, self.token, self.what = stream, token, what

    @property
    def descriptor(self) -> int:
        return self._stream.fileno()


@contextmanager
def run_lock(what: str | None = None, root: Path = Path(), wait_seconds: float = 3.0) -> Iterator[RunLock]:
    """Hold the workspace for a run.

    Args:
        what: who holds it, for messages; default the command line.
        wait_seconds: how long to wait for a run that is just ending.

    Raises:
        RetryableError: another run or stage holds it; says which and since when.
    """
    with _open(root / HOME / "run.lock") as stream:
        if not _take(stream, fcntl.LOCK_EX, wait_seconds):
            raise RetryableError(
                f"this workspace is in use by {_describe(_read_holder(stream))}; wait for it or end it, then try again"
            )
        token = uuid.uuid4().hex
        what = what or _command_line()
        _write_holder(stream, what, token)
        yield RunLock(stream, token, what)


def _command_line() -> str:
    """Return the command as it was typed; with `python -m`, sys.argv has a file's path instead."""
    program = Path(sys.argv[0])
    known = {"lexmill/cli.py": "lexmill", "flows/__main__.py": "python -m flows"}
    return " ".join([known.get("/".join(program.parts[-2:]), program.name), *sys.argv[1:]])


def held_by(root: Path = Path()) -> str | None:
    """Return the token of the run that holds the workspace; None where none does."""
    path = root / HOME / "run.lock"
    if not path.exists():
        return None
    with _open(path) as stream:
        return None if _take(stream, fcntl.LOCK_SH, 0) else str(_read_holder(stream).get("token", ""))


@contextmanager
def stage_guard(stage: str, root: Path = Path(), wait_seconds: float = 30.0) -> Iterator[None]:
    """Hold a stage, and the workspace unless the stage's own run holds it (by the token in the environment).

    Raises:
        RetryableError: after `wait_seconds` another process still runs this stage, or another run holds the workspace.
    """
    with _open(root / HOME / "locks" / file_name(stage)) as own, _open(root / HOME / "run.lock") as shared:
        token = os.environ.get(TOKEN_VARIABLE)
        ours = token is not None and _read_holder(shared).get("token") == token
        if not ours:
            if not _take(shared, fcntl.LOCK_SH, 0):
                raise RetryableError(
                    f"stage '{stage}': this workspace is in use by {_describe(_read_holder(shared))};"
                    " wait for it or end it, then try again"
                )
            _write_holder(shared, f"stage {stage}", "")
        if not _take(own, fcntl.LOCK_EX, wait_seconds):
            raise RetryableError(
                f"stage '{stage}' is already run by {_describe(_read_holder(own))}; wait for it or end it"
            )
        _write_holder(own, f"stage {stage}", "")
        yield


@contextmanager
def only_one(name: str, root: Path = Path()) -> Iterator[None]:
    """Hold a lock for something that may run once (`ui`); raise `RetryableError` with the holder where it runs."""
    with _open(root / HOME / "locks" / name) as stream:
        if not _take(stream, fcntl.LOCK_EX, 0):
            raise RetryableError(f"it is already running: {_describe(_read_holder(stream))}")
        _write_holder(stream, name, "")
        yield
