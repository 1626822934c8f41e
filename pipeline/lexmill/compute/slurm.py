"""Jobs of Slurm, through its commands: sbatch, scontrol, scancel."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from lexmill.base.errors import LexmillError, RetryableError, Terminated, UserError
from lexmill.compute.client import ask
from lexmill.compute.job import JobFolder
from lexmill.compute.launcher import Look
from lexmill.compute.place import Place
from lexmill.compute.settings import Slurm

_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
}
_AGAIN = {"BOOT_FAIL", "DEADLINE", "NODE_FAIL", "PREEMPTED", "REVOKED", "TIMEOUT"}
_RUNNING = {"RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "SUSPENDED"}
_SILENT = re.compile(r"unable to contact|timed out|connection (refused|reset)|not responding", re.IGNORECASE)


class SlurmLauncher:
    """Submit the stage with the project's batch script."""

    name = "slurm"

    def __init__(self, settings: Slurm) -> None:
        self._settings = settings

    def submit(self, place: Place, command: Sequence[str], folder: JobFolder, environment: dict[str, str]) -> str:
        """Queue the stage; return the job's number."""
        if not Path(self._settings.script).is_file():
            raise UserError("slurm.script: the batch script is not there", self._settings.script)
        options = [
            "--parsable",
            f"--job-name=lexmill {place.stage}",
            f"--output={_pattern(folder.log)}",
            f"--nodes={place.nodes}",
        ]
        if place.gpus:
            options.append(f"--gres=gpu:{place.gpus}")
        if place.cpus:
            options.append(f"--cpus-per-task={place.cpus}")
        if place.memory:
            options.append(f"--mem={place.memory}M")
        if place.seconds:
            options.append(f"--time={math.ceil(place.seconds / 60)}")
        if self._settings.partition:
            options.append(f"--partition={self._settings.partition}")
        if self._settings.account:
            options.append(f"--account={self._settings.account}")
        environment = environment | {"LEXMILL_PYTHON": sys.executable, "LEXMILL_REQUEUES": str(self._settings.requeues)}
        words = [*options, *self._settings.options, self._settings.script, str(place.processes), *command]
        return _call("sbatch", *words, environment=environment).strip().partition(";")[0]

    def look(self, job: str) -> Look:
        """Return the state that scontrol reports."""
        try:
            text = _call("scontrol", "show", "job", "--oneliner", job)
        except UserError as error:
            if "Invalid job id" not in str(error):
                raise
            return Look("ended", "Slurm knows it no more")  # it forgets a job five minutes after its end
        found = dict(re.findall(r"(\w+)=(\S*)", text))
        state, reason = found.get("JobState", ""), found.get("Reason", "None")
        detail = state.lower() + (f", {reason}" if reason != "None" else "")
        if state in _ENDED:
            return Look("ended", detail, self._failure(job, state, detail))
        return Look("running" if state in _RUNNING else "waiting", detail)

    @staticmethod
    def _failure(job: str, state: str, detail: str) -> LexmillError:
        """Return why a job ended whose stage left no status."""
        if state == "OUT_OF_MEMORY":
            return UserError(f"slurm job {job} needed more memory than it had; raise `memory` of this stage")
        if state in _AGAIN:
            return RetryableError(f"slurm job {job} was ended ({detail}); run it again")
        if state == "CANCELLED":
            return Terminated(f"slurm job {job} was cancelled")
        return LexmillError(
            f"slurm job {job} ended before its stage began, or was killed ({detail}); see its log above"
        )

    def cancel(self, job: str) -> None:
        """Send SIGTERM to all its processes; Slurm sends SIGKILL after KillWait."""
        try:
            _call("scancel", job)
        except UserError as error:
            if "Invalid job id" not in str(error):
                raise


def _pattern(path: Path) -> str:
    """Escape a path for sbatch: `%` begins a placeholder."""
    return str(path).replace("%", "%%")


def _call(program: str, *words: str, environment: dict[str, str] | None = None) -> str:
    """Return the output of a Slurm command; raise as `ask`."""
    absent = "submit from a machine of the cluster"
    return ask("Slurm", [program, *words], _SILENT, absent, environment=environment)
