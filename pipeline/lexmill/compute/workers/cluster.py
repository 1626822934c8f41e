"""The stage's side of an executor through Prefect, on this machine or a cluster.

Only flows/ imports Prefect, so a child process (`python -m flows.shards`) runs the flow, and the cluster where none is
given. They exchange JSON lines: pieces on its standard input, outcomes on its standard output, in order. The child ends
when its input closes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from lexmill.base.errors import RetryableError, UserError
from lexmill.compute.workers.executor import Advance, Plain, Work, no_advance, results
from lexmill.compute.workers.identity import identity
from lexmill.compute.workers.settings import DataWorkers

_END_SECONDS = 30.0
_ANSWER_SECONDS = 10.0


class Cluster:
    """A Prefect flow that maps over pieces; a context manager that ends it and its cluster."""

    alone = False

    def __init__(self, stage: str, data: DataWorkers, count: int, piece_bytes: int) -> None:
        """
        Args:
            stage: the name of the flow run.
            data: which task runner, and where its cluster is.
            piece_bytes: see `Executor`.
            count: workers of a cluster on this machine; of another one, pieces under way at once (0: twice its cores).

        Raises:
            UserError: this is not the project's folder.
            RetryableError: the cluster does not answer.
        """
        self.piece_bytes = piece_bytes
        if find_spec("flows") is None:
            raise UserError("there is no folder flows/ here, which runs Prefect; run this in the project's folder")
        if data.address:
            _knock(data)
        # For the cluster's files, with a short path for sockets; the longer-lived process removes it.
        self._folder = tempfile.TemporaryDirectory(prefix="lexmill-workers-", ignore_cleanup_errors=True)
        command = [sys.executable, "-m", "flows.shards", data.workers, str(count), data.address, stage]
        command.append(self._folder.name)
        # In a session of its own: Ctrl-C reaches this process, which then closes the child's input.
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        if kind is None:
            self._send({})
        self._close()
        with suppress(subprocess.TimeoutExpired):  # all results are here, or of no use
            self._child.wait(_END_SECONDS)
        self._kill()

    def _send(self, message: Plain) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(message) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            while True:  # it has reported why
                self._outcome()

    def _close(self) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.close()
        except BrokenPipeError:
            return  # it has ended before

    def _kill(self) -> None:
        """Kill what is left of the child's session, which holds its cluster even when the child was killed."""
        import psutil

        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self._child.pid:
                    process.kill()
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        self._child.wait()
        self._folder.cleanup()

    def _outcome(self) -> Plain:
        """Return the next outcome of the child; raise as `results`.

        Raises:
            RetryableError: a worker was lost, or the child has ended.
        """
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line.endswith("\n"):
            code = self._child.wait()
            raise RetryableError(f"the flow over the pieces ended (exit code {code}); its output is above")
        outcome: Plain = json.loads(line)
        if outcome.get("fatal"):
            next(results([outcome], no_advance), None)
        return outcome

    def map(self, work: Work, common: Plain, items: Sequence[Plain], advance: Advance) -> Iterator[Plain]:
        """See `Executor.map`."""
        wanted = identity(Path(common["scratch"]))
        name = f"{work.__module__}:{work.__qualname__}"
        self._send({"work": name, "common": common, "wanted": wanted, "items": list(items)})

        def outcomes() -> Iterator[Plain]:
            for _ in items:
                yield self._outcome()

        return results(outcomes(), advance)


def _knock(data: DataWorkers) -> None:
    try:
        socket.create_connection((data.host, data.port), _ANSWER_SECONDS).close()
    except OSError as error:
        raise RetryableError(
            f"the {data.workers} cluster at {data.address} does not answer ({error}); start it, or correct data.address"
            " of the execution settings"
        ) from None
