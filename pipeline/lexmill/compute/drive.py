"""The submitting side of a stage that runs elsewhere: submit, poll, stream its log, cancel, return its exit code.

It runs inside the stage's own command, so it serves `dvc repro`, `lexmill run` and the flow: for DVC the command takes
as long as the job and ends as the job ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

from lexmill.base import progress
from lexmill.base.errors import EXIT_DONE, EXIT_TERMINATED, EXIT_USER, LexmillError, RetryableError
from lexmill.compute.execution import Execution
from lexmill.compute.job import PATIENCE_VARIABLE, VARIABLE, JobFolder, signs_of_life
from lexmill.compute.launcher import Launcher, Look
from lexmill.compute.place import Place

_STREAM_SECONDS = 0.2
_PATIENCE_HERE = 15.0
_CANCEL_SECONDS = 25.0  # the supervisor kills us after thirty
_ORPHAN_SECONDS = 120.0
_QUIET_LOOKS = 20  # polls without an answer before it is reported


class JobEnded(LexmillError):
    """The stage itself failed elsewhere; its message is already in its log."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = code


def launcher_of(name: str, execution: Execution) -> Launcher:
    """Return the launcher of that name with these settings."""
    if name == "slurm":
        from lexmill.compute.slurm import SlurmLauncher

        return SlurmLauncher(execution.slurm)
    if name == "kubernetes":
        from lexmill.compute.kubernetes import KubernetesLauncher

        return KubernetesLauncher(execution.kubernetes)
    if name == "prefect":
        from lexmill.compute.work_pool import WorkPoolLauncher

        return WorkPoolLauncher(execution.work_pool)
    from lexmill.compute.torchrun import TorchrunLauncher

    return TorchrunLauncher()


def run_elsewhere(place: Place, command: Sequence[str], execution: Execution) -> None:
    """Run a stage's command (its module and arguments, without Python) by its launcher, to its end.

    Raises:
        JobEnded: the stage failed; carries its exit code and message.
        RetryableError: the job was ended from outside (preempted, out of time) and may be run again.
        LexmillError: the cluster's reason for a job that left no status.
    """
    launcher = launcher_of(place.launcher, execution)
    for forgotten in JobFolder.all_of(place.stage):
        _end_forgotten(forgotten, execution)
    folder = JobFolder.new(place.stage)
    patience = execution.orphan_time.seconds if place.elsewhere else _PATIENCE_HERE
    environment = _environment(folder, patience)
    with signs_of_life(folder, patience):
        try:
            job = launcher.submit(place, command, folder, environment)
        except BaseException:
            folder.cancelled.touch()  # it may be in the queue
            raise
        folder.describe(launcher.name, job)
        if place.elsewhere:
            progress.say(f"{place.stage}: {launcher.name} job {job}")
        stream = _Stream(folder)
        try:
            last = _follow(launcher, job, stream, execution.poll_seconds)
        except BaseException:
            folder.cancelled.touch()
            try:
                launcher.cancel(job)
            except LexmillError as error:
                progress.say(f"{error}; the job ends by itself when it sees that it is cancelled")
            _follow(launcher, job, stream, 0.5, until=time.monotonic() + _CANCEL_SECONDS)
            raise
    folder.close()
    _conclude(place, launcher, job, last, folder)


def _conclude(place: Place, launcher: Launcher, job: str, last: Look, folder: JobFolder) -> None:
    status = folder.read_status()
    named = f"{launcher.name} job {job}" if place.elsewhere else launcher.name
    if status is None:
        raise (last.cause or last.failure or RetryableError(f"{named} left no status of its stage ({last.detail})"))
    code, message = status
    if code == EXIT_DONE:
        return
    if last.cause is not None and code not in (EXIT_USER, last.cause.exit_code):
        raise last.cause
    if code == EXIT_TERMINATED:
        raise RetryableError(f"{named} was ended from outside ({last.detail}); run the same command to continue")
    raise JobEnded(code, message)


def _environment(folder: JobFolder, patience: float) -> dict[str, str]:
    """Return the job's environment: this process's, without the names of devices or jobs of this machine."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SLURMD_", "PMI", "CUDA_VISIBLE_DEVICES"))
    }
    return kept | {VARIABLE: str(folder.path), PATIENCE_VARIABLE: str(patience)}


class _Stream:
    """Copies the job's log to stderr as it grows."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder, self._read = folder, 0

    def hand_on(self) -> None:
        try:
            with open(self._folder.log, "rb") as log:
                log.seek(self._read)
                while block := log.read(1 << 16):
                    self._read += len(block)
                    sys.stderr.buffer.write(block)
        except FileNotFoundError:
            return  # a shared file system may be slow to show it
        sys.stderr.flush()


def _follow(launcher: Launcher, job: str, stream: _Stream, poll_seconds: float, until: float | None = None) -> Look:
    """Stream the log and poll until the job has ended (or the time is `until`); return the last state."""
    silent, shown, next_look = 0, "", 0.0
    look = Look("waiting", "submitted")
    while until is None or time.monotonic() < until:
        stream.hand_on()
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + poll_seconds
            try:
                look, silent = launcher.look(job), 0
            except LexmillError as error:
                silent += 1
                if silent == _QUIET_LOOKS:
                    progress.say(f"{error}; waiting until it does")
            if look.state == "ended":
                break
            if look.state == "waiting" and look.detail != shown:
                shown = look.detail
                progress.say(f"{launcher.name} job {job} waits: {shown}")
        time.sleep(_STREAM_SECONDS)
    stream.hand_on()
    return look


def _end_forgotten(folder: JobFolder, execution: Execution, say: Callable[[str], None] = progress.say) -> None:
    """Cancel a job of this stage whose submitting side was killed: two would write the same outputs."""
    found = folder.described()
    if found is None:
        return
    launcher, job = launcher_of(found[0], execution), found[1]
    look = launcher.look(job)
    if look.state != "ended":
        say(f"{launcher.name} job {job} of a run that was killed is ended first")
        folder.cancelled.touch()
        launcher.cancel(job)
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while launcher.look(job).state != "ended":
            if time.monotonic() > deadline:
                raise RetryableError(f"{launcher.name} job {job} of a run that was killed does not end; cancel it")
            time.sleep(0.5)
    folder.close()
