"""The folder of a stage's job elsewhere, shared by the submitting side and the job.

    .lexmill/jobs/<stage>/<submission>/
        job.json     which launcher, and the job's name there
        log          what the stage prints
        alive        a counter of the submitting side; when it stops changing, the job ends itself
        cancelled    exists when the job must end and not come back
        status.json  the stage's exit code and message

The job runs the same `python -m lexmill.stages.NAME KEY` with LEXMILL_JOB naming the folder: it does not submit again,
holds no lock of the workspace (the submitting side does), and leaves its status in the folder. Each submission has its
own folder, so a job whose submitting side was killed sees no sign of life.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lexmill.base import storage, workspace
from lexmill.base.addresses import secret_in
from lexmill.base.errors import EXIT_TERMINATED
from lexmill.base.shown import SECRET_NAME

VARIABLE = "LEXMILL_JOB"
PATIENCE_VARIABLE = "LEXMILL_JOB_PATIENCE"
_HANDED_ON = ("DVC_STAGE", "PYTHONUNBUFFERED")
_LOOKS = 10  # signs of life, and checks for them, within the patience
_GRACE_SECONDS = 60.0


def handed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return our own variables, for a launcher that stores them where others read them: none with a secret."""
    return {
        name: value
        for name, value in environment.items()
        if (name.startswith("LEXMILL_") or name in _HANDED_ON)
        and not (SECRET_NAME.search(name) or ("://" in value and secret_in(value)))
    }


@dataclass(frozen=True)
class JobFolder:
    """The folder of one submission of a stage."""

    path: Path

    @classmethod
    def all_of(cls, stage: str, root: Path = Path()) -> list[JobFolder]:
        """Return the remaining folders of a stage's submissions."""
        place = _place(stage, root)
        return [cls(path) for path in sorted(place.iterdir())] if place.is_dir() else []

    @classmethod
    def new(cls, stage: str, root: Path = Path()) -> JobFolder:
        """Make a folder for another submission; remove those whose end is known."""
        for one in cls.all_of(stage, root):
            if one.described() is None and (one.status.exists() or one.cancelled.exists()):
                shutil.rmtree(one.path, ignore_errors=True)
        made = cls(_place(stage, root) / uuid.uuid4().hex[:12])
        made.path.mkdir(parents=True)
        made.log.touch()
        return made

    @classmethod
    def here(cls) -> JobFolder | None:
        """Return the folder of the job that this process is; None where it is none."""
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
        """Record which job it is, for recovery after a kill."""
        storage.write_json(self._job, {"launcher": launcher, "job": job})

    def described(self) -> tuple[str, str] | None:
        """Return (launcher, job) of a job whose end was not seen yet."""
        try:
            found = storage.read_json(self._job)
            return str(found["launcher"]), str(found["job"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def close(self) -> None:
        """Record that its end was seen."""
        self._job.unlink(missing_ok=True)

    def write_status(self, code: int, message: str) -> None:
        storage.write_json(self.status, {"code": code, "message": message})

    def read_status(self) -> tuple[int, str] | None:
        """Return the exit code and message that the stage left; None where it left none."""
        try:
            found = storage.read_json(self.status)
            return int(found["code"]), str(found["message"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None


def _place(stage: str, root: Path) -> Path:
    return (root / workspace.HOME / "jobs" / workspace.file_name(stage)).resolve()


@contextmanager
def signs_of_life(folder: JobFolder, patience: float) -> Iterator[None]:
    """Give the job signs of life from a thread, often enough for its patience in seconds."""
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
    """End this job by SIGTERM when it was cancelled or the submitting side gives no sign of life.

    An abandoned job would train in vain, or beside the stage's next job. Without the file `alive` the job was submitted
    by hand and is not watched.
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
