"""Run one stage through DVC's command line under the supervisor; pass on its output and its own exit code.

DVC exits with 255 for every failure; the stage's own code comes from the status file of `lexmill.stages.entry`, or from
DVC's text ("exited with N") for other commands.
Cost: DVC's start, about 1.4 s a stage, and 0.1 s for the supervisor.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lexmill.base import storage, workspace
from lexmill.base.errors import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RETRY,
    EXIT_TERMINATED,
    EXIT_USER,
    machine_error,
)
from lexmill.base.progress import RECORD_MARK
from lexmill.base.quiet import quieten
from lexmill.runner import recorded

OWN_CODES = (EXIT_DONE, EXIT_BUG, EXIT_USER, EXIT_RETRY, EXIT_INTERRUPTED, EXIT_TERMINATED)
_TAIL = 40
_SKIPPED = re.compile(r"(^|\s)Stage '.*' didn't change, skipping")
_RESTORED = re.compile(r"(^|\s)Stage '.*' is cached - skipping run, checking out outputs")
_EXITED = re.compile(r"exited with (-?\d+)")
_OS_ERROR = re.compile(r"\[Errno (\d+)\] [^:]*(?:: '(.*?)')?")
_DVC_ERROR = re.compile(r"^ERROR: ")


@dataclass(frozen=True)
class Outcome:
    """How a stage ended.

    `code` is an exit code of `lexmill.base.errors`; `message` says what went wrong (empty when nothing did); DVC
    restored a "restored" stage from its cache.
    """

    stage: str
    state: Literal["ran", "restored", "unchanged", "failed", "stopped"]
    code: int
    seconds: float
    message: str = ""


class Stop:
    """A request to stop, seen by all that runs: its exit code, and the callbacks to run."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._tell: dict[int, Callable[[int], None]] = {}

    def request(self, code: int) -> None:
        """Ask for an end with `EXIT_INTERRUPTED` or `EXIT_TERMINATED`; later requests keep the first code.

        All callbacks are called; an exception in one is printed and does not stop the others.
        """
        if self.code is None:
            self.code = code
        self._event.set()
        with self._lock:
            tell = list(self._tell.values())
        for one in tell:
            try:
                one(code)
            except Exception as error:
                traceback.print_exception(error)

    def wait(self, seconds: float) -> bool:
        """Sleep until a request at most; return whether there was one."""
        return self._event.wait(seconds)

    def attach(self, tell: Callable[[int], None]) -> int:
        """Call `tell` with the code at a request, at once if there was one; return a key for `detach`."""
        key = id(tell)
        with self._lock:
            self._tell[key] = tell
        if self.code is not None:
            tell(self.code)
        return key

    def detach(self, key: int) -> None:
        with self._lock:
            self._tell.pop(key, None)


@dataclass
class Listener:
    """Callbacks for a running stage: for a printed line, a progress record, a message for the user."""

    line: Callable[[str], None]
    record: Callable[[dict[str, Any]], None]
    said: Callable[[str], None]


def environment(token: str) -> dict[str, str]:
    """Return the environment of a supervised stage: this Python first on PATH, the run's token, progress records."""
    quieten()
    here = str(Path(sys.executable).parent)
    return os.environ | {
        "PATH": os.pathsep.join([here, os.environ.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
        "LEXMILL_PROGRESS": "records",
        workspace.TOKEN_VARIABLE: token,
    }


def run_stage(
    stage: str, root: Path, lock: workspace.RunLock, stop: Stop, listener: Listener, *, force: bool = False
) -> Outcome:
    """Run one stage (`dvc --wait-for-lock repro -s STAGE`) to its end.

    Args:
        lock: the held workspace; the supervisor holds it until the tree has ended.
        stop: ends the stage in order when requested.
        listener: gets what the stage prints; the output also goes to .lexmill/logs/<stage>.log.
        force: run it though DVC sees no change.
    """
    start = time.monotonic()
    workspace.clear_status(stage, root)
    log = workspace.log_path(stage, root)
    log.parent.mkdir(parents=True, exist_ok=True)
    dvc = [sys.executable, "-P", "-m", "dvc", "--wait-for-lock", "repro", "-s", *(["-f"] if force else []), stage]
    process = subprocess.Popen(
        [sys.executable, "-m", "lexmill.runner.supervisor", *dvc],
        cwd=root,
        env=environment(lock.token),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(lock.descriptor,),
        start_new_session=True,  # Ctrl-C reaches us alone; we pass it on in order
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pipe = process.stdin.fileno()
    key = stop.attach(lambda code: _order(pipe, code))
    tail: list[str] = []
    try:
        with open(log, "w", encoding="utf-8") as stream:
            for raw in process.stdout:
                text = raw.decode("utf-8", errors="replace").rstrip("\r\n")
                _hear(text, stream.write, tail, listener)
                stream.flush()
        code = process.wait()
    finally:
        stop.detach(key)
        process.stdin.close()
        process.stdout.close()
        process.wait()
    status = workspace.read_status(stage, root)
    outcome = _outcome(stage, code, tail=tail, status=status, seconds=time.monotonic() - start, stop=stop)
    if outcome.state == "restored":  # no writer of its own has removed what a killed one left
        for path in recorded.read(root, stage).outputs:
            storage.remove_half_written(root / path)
    return outcome


def _order(pipe: int, code: int) -> None:
    try:
        os.write(pipe, b"i" if code == EXIT_INTERRUPTED else b"t")
    except OSError:
        return  # the supervisor has just ended


def _hear(text: str, log: Callable[[str], Any], tail: list[str], listener: Listener) -> None:
    before, mark, record = text.partition(RECORD_MARK)
    if before or not mark:
        log(before + "\n")
        tail.append(before)
        del tail[:-_TAIL]
        listener.line(before)
    if not mark:
        return
    try:
        data = json.loads(record)
    except ValueError:
        return  # torn by two writers; the next one comes
    if "say" in data:
        log(data["say"] + "\n")
        listener.line(data["say"])
        listener.said(data["say"])
    else:
        listener.record(data)


def _outcome(
    stage: str, dvc_code: int, *, tail: list[str], status: tuple[int, str] | None, seconds: float, stop: Stop
) -> Outcome:
    if dvc_code == 0:
        state: Literal["ran", "restored", "unchanged"] = "ran"
        if status is None and any(_SKIPPED.search(line) for line in tail):
            state = "unchanged"
        elif status is None and any(_RESTORED.search(line) for line in tail):
            state = "restored"
        return Outcome(stage, state, EXIT_DONE, seconds)
    if stop.code is not None:
        return Outcome(stage, "stopped", stop.code, seconds)
    if status is not None and status[0] != EXIT_DONE:
        code, message = status
        return Outcome(stage, "failed", code if code in OWN_CODES else EXIT_BUG, seconds, message)
    code, message = _from_text(dvc_code, tail)
    return Outcome(stage, "failed", code, seconds, message)


def _from_text(dvc_code: int, tail: list[str]) -> tuple[int, str]:
    """Return the code and message of a failure without a status: killed, another command, or DVC's own."""
    errors = [_DVC_ERROR.sub("", line) for line in tail if _DVC_ERROR.match(line)]
    text = "\n".join(errors) or "\n".join(tail[-5:]) or f"dvc ended with {dvc_code}"
    exited = _EXITED.search(text)
    if exited is None:
        if "database or disk is full" in text or "disk I/O error" in text:  # SQLite's words, in DVC's mouth
            return EXIT_RETRY, f"the disk is full or does not answer; run again when it does ({text})"
        if "database disk image is malformed" in text or "file is not a database" in text:
            return EXIT_USER, f"DVC's cache of hashes is damaged; `lexmill doctor --fix` removes it ({text})"
        retry = "is busy, it is being blocked by" in "\n".join(tail) or "Unable to acquire lock" in text
        if found := _OS_ERROR.search(text):
            error = machine_error(OSError(int(found[1]), os.strerror(int(found[1])), found[2]))
            return (EXIT_BUG if error is None else error.exit_code), text
        return (EXIT_RETRY if retry else EXIT_BUG), text
    code = int(exited.group(1))
    if code in (-signal.SIGINT, EXIT_INTERRUPTED):
        return EXIT_INTERRUPTED, "interrupted"
    if code in (-signal.SIGTERM, EXIT_TERMINATED):
        return EXIT_TERMINATED, "terminated"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return EXIT_BUG, "killed (signal 9): most often the machine ran out of memory"
    output = [line for line in tail if line and not _DVC_ERROR.match(line)]
    return (code if code in OWN_CODES else EXIT_BUG), "\n".join([*output[-5:], text])
