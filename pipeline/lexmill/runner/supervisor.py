"""A small process above dvc that ends the tree below it, whatever happens to its parent.

    python -m lexmill.runner.supervisor COMMAND...        (with a pipe as standard input)

The parent holds the other end of that pipe. When it closes, the parent is gone (even by kill -9), and the tree is ended
within about two seconds. If the supervisor itself is killed, the system ends the command. The bytes `i` and `t` ask for
an orderly end, by SIGINT or SIGTERM to the stage; what remains after `GRACE_SECONDS` is killed. Exits with the
command's code (128 + N after signal N).

A signal would kill dvc and leave the stage running. So the stage, the first process below dvc that is no shell, gets
the signal, and dvc then returns by itself with its locks released.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

import psutil

from lexmill.base.shells import SHELLS

GRACE_SECONDS = 30.0
ORPHAN_SECONDS = 1.0
TRAIL_SECONDS = 1.0  # for clean-up after the command has ended
_POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """Run one command and end it, with all below it, on request."""

    def __init__(self, command: list[str]) -> None:
        self._adopt_orphans()
        # There are no threads yet, so code may run between fork and exec.
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=self._end_with_this)  # noqa: PLW1509
        self._stopping = threading.Event()
        self._signalled: set[tuple[int, float]] = set()

    @staticmethod
    def _adopt_orphans() -> None:
        # On Linux, orphans below become children of this process.
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    @staticmethod
    def _end_with_this() -> None:
        # On Linux, the command gets SIGTERM when this process is killed; a stage ends when its dvc is gone.
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    def watch(self) -> None:
        """Obey the parent's bytes until its end of the pipe closes."""
        while True:
            order = os.read(0, 1)
            if order == b"":
                threading.Thread(target=self.stop, args=(signal.SIGTERM, ORPHAN_SECONDS), daemon=True).start()
                return
            how = signal.SIGINT if order == b"i" else signal.SIGTERM
            threading.Thread(target=self.stop, args=(how, GRACE_SECONDS), daemon=True).start()

    def stop(self, how: signal.Signals, grace: float) -> None:
        """Signal the stage; kill it after `grace` seconds, and dvc too if it does not end then."""
        self._stopping.set()
        deadline = time.monotonic() + grace
        while self.child.poll() is None and time.monotonic() < deadline:
            self._ask(how)
            time.sleep(_POLL_SECONDS)
        # dvc first writes its lock files, which is not atomic.
        deadline = time.monotonic() + TRAIL_SECONDS
        while self.child.poll() is None and time.monotonic() < deadline:
            self._kill_stages()
            time.sleep(_POLL_SECONDS)
        self.kill_rest()

    def _ask(self, how: signal.Signals) -> None:
        """Signal the stages below dvc once each; if there is none yet, interrupt dvc itself.

        Once its stage has ended, dvc is left alone: it is writing its lock files.
        """
        try:
            dvc = psutil.Process(self.child.pid)
            stages = list(_stages(dvc))
            if not stages and (self._signalled or _waited_for_one(dvc)):
                return
            for process in stages or [dvc]:
                key = (process.pid, process.create_time())
                if key not in self._signalled:
                    self._signalled.add(key)
                    process.send_signal(how if stages else signal.SIGINT)
        except psutil.NoSuchProcess:
            return  # it has just ended by itself

    def _kill_stages(self) -> None:
        try:
            for process in psutil.Process(self.child.pid).children(recursive=True):
                process.kill()
        except psutil.NoSuchProcess:
            return  # it has just ended

    def kill_rest(self) -> None:
        """Kill everything below this process, until nothing is left."""
        while rest := psutil.Process().children(recursive=True):
            for process in rest:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs([process for process in rest if process.pid != self.child.pid], timeout=1)
            if self.child.poll() is not None and all(not _alive(process) for process in rest):
                return
            time.sleep(_POLL_SECONDS)

    def run(self) -> int:
        """Wait for the command, kill what is left of it, and return its exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        threading.Thread(target=self.watch, daemon=True).start()
        while (code := self.child.poll()) is None:
            time.sleep(_POLL_SECONDS)
        deadline = time.monotonic() + TRAIL_SECONDS
        while psutil.Process().children() and not self._stopping.is_set() and time.monotonic() < deadline:
            psutil.wait_procs(psutil.Process().children(), timeout=_POLL_SECONDS)
        self.kill_rest()
        return code if code >= 0 else 128 - code

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=self.stop, args=(signal.Signals(number), GRACE_SECONDS), daemon=True).start()


def _stages(process: psutil.Process) -> list[psutil.Process]:
    """Return the first processes below that are no shells."""
    found: list[psutil.Process] = []
    for child in process.children():
        try:
            found.extend(_stages(child) if child.name().lower() in SHELLS else [child])
        except psutil.NoSuchProcess:
            continue
    return found


def _waited_for_one(process: psutil.Process) -> bool:
    """Return whether a child of this process has ended: its time then counts as the parent's."""
    times = process.cpu_times()
    return bool(times.children_user + times.children_system > 0)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    sys.exit(Supervisor(sys.argv[1:]).run())
