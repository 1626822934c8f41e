"""Stages as flow runs of a Prefect work pool, for any worker that sees the same workspace.

Only flows/ imports Prefect: a process, `python -m flows.stage`, submits the run and reports its states.
Cost: that process, about 150 MB, while the stage runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lexmill.base.errors import EXIT_RETRY, EXIT_USER, LexmillError, RetryableError, UserError
from lexmill.compute.job import JobFolder, handed_on
from lexmill.compute.launcher import Look
from lexmill.compute.place import Place

_SECONDS = 120


class WorkPoolLauncher:
    """Submit to one pool; a job's name is the flow run's id."""

    name = "prefect"

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._process: subprocess.Popen[str] | None = None
        self._last = Look("waiting", "scheduled")

    def submit(self, place: Place, command: Sequence[str], folder: JobFolder, environment: dict[str, str]) -> str:
        """Start the flow run. Pass only our own environment variables: the server stores them in its database."""
        many = place.processes > 1
        module = ["-P", "-m", "torch.distributed.run"]
        start = [*module, "--standalone", f"--nproc-per-node={place.processes}"] if many else []
        given = {
            "stage": place.stage,
            "root": str(Path.cwd()),
            "command": [*start, *command],
            "environment": handed_on(environment),
        }
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "flows.stage", self._pool],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # we pass Ctrl-C on
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        lines = _spoken(process.stdout)
        first = next(lines, {})
        if "id" not in first:
            raise self._error(first)
        threading.Thread(target=self._listen, args=(lines,), daemon=True).start()
        return str(first["id"])

    def look(self, job: str) -> Look:
        """Return the last reported state; ask for a run whose submitting side was killed."""
        if self._process is None:
            answer = self._ask("--look", job)
            return Look(answer["state"], answer["detail"])
        if self._process.poll() is not None and self._last.state != "ended":
            return Look("ended", "its submitter has ended", RetryableError(f"prefect run {job} was lost; run it again"))
        return self._last

    def cancel(self, job: str) -> None:
        """Cancel the run; its worker ends the stage, which sees the cancellation in its job's folder."""
        if self._process is None:
            self._ask("--cancel", job)
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("cancel\n")
            self._process.stdin.flush()
        except OSError:
            return  # the run has just ended

    def _listen(self, lines: Iterator[dict[str, Any]]) -> None:
        for line in lines:
            if "state" in line:
                failure = (
                    LexmillError(f"its prefect run is {line['detail']}; see the worker's log")
                    if line["state"] == "ended"
                    else None
                )
                self._last = Look(line["state"], line["detail"], failure)

    def _ask(self, *words: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "flows.stage", self._pool, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
        answer = next(_spoken(done.stdout.split("\n")), {})
        if done.returncode:
            raise self._error(answer)
        return answer

    def _error(self, answer: dict[str, Any]) -> LexmillError:
        if "error" not in answer:
            return LexmillError("launcher prefect: `python -m flows.stage` does not start in this folder")
        kinds = {EXIT_RETRY: RetryableError, EXIT_USER: UserError}
        return kinds.get(answer.get("code", 0), LexmillError)(str(answer["error"]))


def _spoken(lines: Any) -> Iterator[dict[str, Any]]:
    """Yield the lines of JSON in the output."""
    for line in lines:
        if line.startswith("{"):
            yield dict(json.loads(line))
