"""A stage's job elsewhere, as both sides see it: one folder in the workspace, which they share.

    .lexmill/jobs/<stage>/<submission>/
        job.json     which launcher, and the job's name there
        log          what the stage prints
        alive        a number that the submitting side changes; when it stands still, the job ends itself
        cancelled    there when the job shall end and not come back
        status.json  how the stage ended: its exit code and its message

The job's own process runs the same `python -m lexmill.stages.NAME KEY` with LEXMILL_JOB naming the folder: it does not
submit again, holds no lock of the workspace (the submitting side does), and leaves its end in the folder. Each
submission has a folder of its own: a job whose submitting side was killed sees no sign of life there, whatever comes
after it.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lexmill.base import storage, workspace
from lexmill.base.errors import EXIT_TERMINATED

VARIABLE = "LEXMILL_JOB"
PATIENCE_VARIABLE = "LEXMILL_JOB_PATIENCE"
_LOOKS = 10  # how often the sign of life is given, and looked for, within the patience for it
_GRACE_SECONDS = 60.0


@dataclass(frozen=True)
class JobFolder:
    """The folder of one submission of a stage."""

    path: Path

    @classmethod
    def all_of(cls, stage: str, root: Path = Path()) -> list[JobFolder]:
        """The folders of a stage's submissions that are left."""
        place = _place(stage, root)
        return [cls(path) for path in sorted(place.iterdir())] if place.is_dir() else []

    @classmethod
    def new(cls, stage: str, root: Path = Path()) -> JobFolder:
        """A folder for another submission; those whose end is known are removed."""
        for one in cls.all_of(stage, root):
            if one.described() is None and (one.status.exists() or one.cancelled.exists()):
                shutil.rmtree(one.path, ignore_errors=True)
        made = cls(_place(stage, root) / uuid.uuid4().hex[:12])
        made.path.mkdir(parents=True)
        made.log.touch()
        return made

    @classmethod
    def here(cls) -> JobFolder | None:
        """The folder of the job that this process is; None where it is none."""
        found = os.environ.get(VARIABLE)
        return cls(Path(found)) if found else None

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def alive(self) -> Path:
        return self.path / "alive"

    @property
    def cancelled(self) -> Path:
        return self.path / "cancelled"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def _job(self) -> Path:
        return self.path / "job.json"

    def describe(self, launcher: str, job: str) -> None:
        """Note which job it is, for whoever comes after a kill."""
        storage.write_json(self._job, {"launcher": launcher, "job": job})

    def described(self) -> tuple[str, str] | None:
        """(launcher, job) of a job whose end nobody has seen."""
        try:
            found = storage.read_json(self._job)
            return str(found["launcher"]), str(found["job"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def close(self) -> None:
        """Its end was seen."""
        self._job.unlink(missing_ok=True)

    def write_status(self, code: int, message: str) -> None:
        storage.write_json(self.status, {"code": code, "message": message})

    def read_status(self) -> tuple[int, str] | None:
        """The exit code and message that the stage left, None where it left none."""
        try:
            found = storage.read_json(self.status)
            return int(found["code"]), str(found["message"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None


def _place(stage: str, root: Path) -> Path:
    return (root / workspace.HOME / "jobs" / workspace.file_name(stage)).resolve()


@contextmanager
def signs_of_life(folder: JobFolder, patience: float) -> Iterator[None]:
    """Give the job a sign of life, often enough for its patience in seconds, from a thread."""
    done = threading.Event()

    def beat() -> None:
        count = 0
        while True:
            count += 1
            folder.alive.write_text(str(count), encoding="utf-8")
            if done.wait(patience / _LOOKS):
                return

    thread = threading.Thread(target=beat, name="signs-of-life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def watch_submitter(folder: JobFolder) -> None:
    """End this job by SIGTERM when it was cancelled, or when the submitting side has given no sign of life for long.

    A job that nobody waits for would train for nobody, or beside the next one of the same stage. One without the file
    `alive` was submitted by hand: nobody watches it.
    """
    if folder.alive.exists():
        patience = float(os.environ.get(PATIENCE_VARIABLE) or 120)
        threading.Thread(target=_watch, args=(folder, patience), name="watch-submitter", daemon=True).start()


def _watch(folder: JobFolder, patience: float) -> None:
    last, since = "", time.monotonic()
    while not folder.cancelled.exists():
        try:
            sign = folder.alive.read_text(encoding="utf-8")
        except OSError:
            sign = last
        now = time.monotonic()
        if sign not in ("", last):
            last, since = sign, now
        elif now - since > patience:
            folder.cancelled.touch()
        time.sleep(patience / _LOOKS / 2)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(EXIT_TERMINATED)
