"""Start several processes of one training on this machine with torchrun.

Under torchrun, not Lightning's own launcher, processes find each other by the same variables as on several machines,
and the whole group ends when one of them does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from lexmill.base.errors import EXIT_BUG, EXIT_RETRY, EXIT_USER, LexmillError, RetryableError, UserError
from lexmill.compute.job import JobFolder
from lexmill.compute.launcher import Look
from lexmill.compute.place import Place

_MODULE = "lexmill.compute.group"
_CAUSES = {
    EXIT_RETRY: RetryableError("a process of the training was lost; run it again to continue from the checkpoint"),
    EXIT_USER: UserError("a process of the training found an error; its message is above"),
    EXIT_BUG: LexmillError("a process of the training failed; its output is above"),
}


class TorchrunLauncher:
    """Start torchrun for this machine alone; the job's name is its process id."""

    name = "torchrun"

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def submit(self, place: Place, command: Sequence[str], folder: JobFolder, environment: dict[str, str]) -> str:
        """Start one process per device."""
        if "CUDA_VISIBLE_DEVICES" in os.environ:  # what was leased here
            environment = environment | {"CUDA_VISIBLE_DEVICES": os.environ["CUDA_VISIBLE_DEVICES"]}
        run = ["-m", _MODULE, "--standalone", f"--nproc-per-node={place.processes}"]
        with open(folder.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *run, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the submitting side, which passes it on
            )
        return str(self._process.pid)

    def look(self, job: str) -> Look:
        """Return the state of torchrun, also of one whose submitting side was killed."""
        if self._process is None:
            return Look("running", "running") if _torchrun(job) else Look("ended", "gone")
        code = self._process.poll()
        if code is None:
            return Look("running", "running")
        failure = LexmillError(f"torchrun ended with {code}; its output is above")
        return Look("ended", f"exit code {code}", failure, _CAUSES.get(code))

    def cancel(self, job: str) -> None:
        """Send SIGTERM to torchrun, which passes it on and kills its processes half a minute later."""
        if self._process is None:
            if (process := _torchrun(job)) is not None:
                process.terminate()
        elif self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


def _torchrun(job: str) -> Any:
    """Return the process of that id if it is (still) a torchrun."""
    import psutil

    try:
        process = psutil.Process(int(job))
        return process if any(_MODULE in word for word in process.cmdline()) else None
    except (ValueError, psutil.NoSuchProcess, psutil.AccessDenied):
        return None
