"""One stage as a flow run of a Prefect work pool, for a worker on another machine that sees the same workspace.

    python -m flows.stage POOL                submit the stage on standard input, report its states until its end
    python -m flows.stage POOL --look ID      the state of a run
    python -m flows.stage POOL --cancel ID    cancel a run

The launcher `prefect` (lexmill.compute.work_pool) starts this, so only flows/ imports Prefect. It prints lines of JSON:
`{"id": ...}`, `{"state": ..., "detail": ...}`, `{"code": ..., "error": ...}`. It ends with its standard input.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Cancelled, Cancelling

from lexmill.base.errors import EXIT_DONE, LexmillError, RetryableError, UserError
from lexmill.base.quiet import quieten
from lexmill.compute.job import VARIABLE
from lexmill.stages.entry import outcome

_FINAL = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 60.0


class StageEnded(LexmillError):
    """The stage failed; its message is in its log and its job's folder."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the stage ended with exit code {code}")
        self.exit_code = code


@flow(name="lexmill-stage", persist_result=False)
def run_stage(root: str, command: list[str], environment: dict[str, str]) -> None:
    """Run a stage's command in the workspace; its output goes to its job's folder.

    Args:
        root: the workspace, at the same path on both machines.
        command: of Python.
        environment: the job's variables; the rest is the worker's.
    """
    with open(Path(environment[VARIABLE]) / "log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=root,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        while (code := process.poll()) is None:
            time.sleep(0.2)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    if code != EXIT_DONE:
        raise StageEnded(code)


def main() -> None:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(prog="python -m flows.stage", description="A stage in a Prefect work pool.")
    parser.add_argument("pool")
    parser.add_argument("--look", type=UUID, metavar="ID")
    parser.add_argument("--cancel", type=UUID, metavar="ID")
    options = parser.parse_args()
    quieten()

    def work() -> None:
        with _ReadableErrors(options.pool), get_client(sync_client=True) as client:
            if options.look is not None:
                _tell(**_state(client, options.look))
            elif options.cancel is not None:
                _cancel(client, options.cancel)
            else:
                _follow(client, _submit(client, options.pool, json.loads(sys.stdin.readline())))

    code, message = outcome(work)
    if code != EXIT_DONE:
        _tell(code=code, error=message)
    sys.exit(code)


class _ReadableErrors:
    """Turns Prefect's errors into sentences."""

    def __init__(self, pool: str) -> None:
        self._pool = pool

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, ObjectNotFound):
            raise UserError(
                f"launcher prefect: there is no work pool '{self._pool}'; `prefect work-pool create --type process"
                f" {self._pool}` makes it"
            ) from None
        if isinstance(error, PrefectHTTPStatusError) and error.response.status_code < 500:
            raise UserError(
                f"Prefect refuses it: {error.response.status_code} {error.response.reason_phrase}"
            ) from None
        if isinstance(error, HTTPError | OSError):
            raise RetryableError(f"Prefect does not answer ({type(error).__name__})") from None


def _submit(client: SyncPrefectClient, pool: str, given: dict[str, Any]) -> UUID:
    """Start a run in the pool, after making or updating its deployment."""
    client.read_work_pool(pool)
    here = Path(__file__).resolve().parent.parent
    source: Any = run_stage.from_source(source=str(here), entrypoint="flows/stage.py:run_stage")
    source.to_deployment(name=pool, work_pool_name=pool).apply()
    run: Any = run_deployment(
        f"{run_stage.name}/{pool}",
        parameters={name: given[name] for name in ("root", "command", "environment")},
        flow_run_name=given["stage"],
        timeout=0,
        as_subflow=False,
    )
    _tell(id=str(run.id))
    return UUID(str(run.id))


def _follow(client: SyncPrefectClient, run: UUID) -> None:
    """Report each new state until the last; a line on standard input asks for a cancel, its end for ours."""
    cancel, gone = threading.Event(), threading.Event()

    def listen() -> None:
        for _ in sys.stdin:
            cancel.set()
        gone.set()

    threading.Thread(target=listen, daemon=True).start()
    last: dict[str, str] = {}
    while not gone.is_set():
        if cancel.is_set():
            cancel.clear()
            _patiently(lambda: _cancel(client, run))
        found = _patiently(lambda: _state(client, run))
        if found is not None and found != last:
            last = found
            _tell(**found)
        if last.get("state") == "ended":
            return
        gone.wait(_LOOK_SECONDS)


def _patiently(ask: Callable[[], Any]) -> Any:
    """Ask the server; return None where it does not answer now."""
    try:
        return ask()
    except (HTTPError, OSError):
        return None


def _state(client: SyncPrefectClient, run: UUID) -> dict[str, str]:
    try:
        state = client.read_flow_run(run).state
    except ObjectNotFound:
        return {"state": "ended", "detail": "deleted"}
    kind = "SCHEDULED" if state is None else state.type.value
    name = kind.lower() if state is None else str(state.name).lower()
    if kind in _FINAL:
        return {"state": "ended", "detail": name}
    running = kind in ("RUNNING", "CANCELLING")
    detail = f"{name}: is a worker of the pool up?" if name == "late" else name
    return {"state": "running" if running else "waiting", "detail": detail}


def _cancel(client: SyncPrefectClient, run: UUID) -> None:
    """Ask the worker to end it, or end it at once if none has taken it."""
    state = client.read_flow_run(run).state
    if state is None or state.type.value not in _FINAL:
        started = state is not None and state.type.value in ("RUNNING", "CANCELLING")
        client.set_flow_run_state(run, Cancelling() if started else Cancelled(), force=True)


def _tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
