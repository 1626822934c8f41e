"""A command in a workspace that a test stops: by signal, at a chosen moment, wherever its processes went."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil

from tests.e2e.conftest import Project

MARK = "LEXMILL_FAULTS"
ASKED = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}  # sent to the command itself
KILLED = {  # by kill -9; by the modules that its command line may name
    "everything": ("",),
    "runner": ("lexmill.cli", "flows"),
    "supervisor": ("lexmill.runner.supervisor",),
    "dvc": ("dvc",),
    "stage": ("lexmill.stages.",),
}


class Victim:
    """`python command...` that can be found whole."""

    def __init__(self, project: Project, *command: str, log: Path | None = None, **environment: str) -> None:
        self.mark = uuid.uuid4().hex
        self.log = log or project.root.parent / f"{self.mark}.log"
        with open(self.log, "ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=project.root,
                env=project.environment | environment | {MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def processes(self) -> list[psutil.Process]:
        """What lives of it: all processes that inherited its mark."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def of_kind(self, kind: str) -> list[psutil.Process]:
        """The processes of one of KILLED."""
        living = self.processes()
        return living if kind == "everything" else [p for p in living if _module(p).startswith(KILLED[kind])]

    def stop(self, how: str) -> list[str]:
        """Send the signal of one of ASKED, or kill those of KILLED as soon as there are any; gives whom."""
        if how in ASKED:
            if self.running:
                self.process.send_signal(ASKED[how])
                return ["the command"]
            return []
        while self.running:
            if victims := self.of_kind(how):
                names = [_module(process) for process in victims]
                for process in victims:
                    try:
                        process.kill()
                    except psutil.NoSuchProcess:
                        continue
                return names
            time.sleep(0.02)
        return []

    def wait_until_gone(self, seconds: float = 120) -> int:
        """Wait for the end of all its processes; the command's exit code."""
        deadline = time.monotonic() + seconds
        while left := self.processes():
            assert time.monotonic() < deadline, f"still alive: {[_module(process) for process in left]}\n{self.said()}"
            time.sleep(0.1)
        return self.process.wait()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def _module(process: psutil.Process) -> str:
    """`lexmill.stages.train gpt` of `python -P -m lexmill.stages.train gpt`; else empty."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    own = words[2:] if words[1:2] == ["-P"] else words[1:]
    return " ".join(own[1:]) if own[:1] == ["-m"] else ""
