"""Map the pieces of a data stage as tasks of a Prefect flow: in local processes, on Dask or on Ray.

    python -m flows.shards prefect|dask|ray COUNT ADDRESS NAME FOLDER

A stage starts it (`lexmill.compute.workers.cluster`). Pieces come by standard input and outcomes go to standard output,
a line of JSON each. Pieces are mapped a few at a time, so neither the flow nor the cluster holds a whole corpus;
Prefect retries one that ends with "try again" (75). Without an address the cluster is this process's own and ends with
it. If the input closes without an end message, the stage is gone and all work ends at once.
Cost: a few seconds to start (15 more where no Prefect server runs), a tenth of a second per piece.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from lexmill.base.answering import answers
from lexmill.base.errors import EXIT_BUG, EXIT_DONE, EXIT_RETRY, EXIT_USER, RetryableError, UserError
from lexmill.base.progress import say, speak_utf8
from lexmill.base.quiet import quieten
from lexmill.compute.workers.executor import Plain
from lexmill.compute.workers.processes import Processes, lost_worker
from lexmill.stages.entry import outcome, terminate

RETRY_PAUSES = [1, 10, 60]  # seconds
_WORKERS_SECONDS = 60
_GRACE_SECONDS = 10.0
_DRAIN_SECONDS = 10
_TRIES = 3
_OBJECT_STORE_BYTES = 100 << 20  # only small objects
_LOST = (
    "KilledWorker",
    "WorkerCrashedError",
    "OutOfMemoryError",
    "NodeDiedError",
    "BrokenProcessPool",
    "CancelledError",
)


_body: list[Callable[[], None]] = []  # of the one flow run of this process


class SomeFailed(Exception):
    """Ends the flow after failed pieces, all reported to the stage."""


class Input:
    """The requests of the stage; end this process when the stage is gone without an end message."""

    def __init__(self, stream: TextIO) -> None:
        self._lines: queue.Queue[Plain] = queue.Queue()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: TextIO) -> None:
        for line in stream:
            message = json.loads(line)
            self._lines.put(message)
            if not message:
                return
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(_GRACE_SECONDS)
        _end_at_once()

    def requests(self) -> Iterator[Plain]:
        """Yield each request with its pieces; an empty one is the end."""
        while request := self._lines.get():
            yield request


def _end_at_once() -> None:
    import psutil

    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(EXIT_BUG)


def main() -> None:
    """Read the command line and serve one stage."""
    kind, count, address, name, folder = sys.argv[1:]
    # Only outcomes go to the stage: libraries print to stderr.
    sink = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    quieten()
    speak_utf8()
    signal.signal(signal.SIGTERM, terminate)

    def tell(found: Plain) -> None:
        sink.write(json.dumps(found) + "\n")
        sink.flush()

    given = Input(sys.stdin)
    tempfile.tempdir = folder
    code, message = outcome(lambda: _serve(kind, int(count), address, name, given=given, tell=tell))
    shutil.rmtree(folder, ignore_errors=True)
    if code != EXIT_DONE and message:
        try:
            tell({"code": code, "messages": [message], "fatal": True})
        except BrokenPipeError:
            say(message)
    sys.exit(code)


def _serve(kind: str, count: int, address: str, name: str, *, given: Input, tell: Callable[[Plain], None]) -> None:
    from flows.server import prefect_server

    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with prefect_server(Path.cwd()) as wait, ExitStack() as stack:
        from prefect import flow, tags
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogWorker

        wait()
        _check_server(address)
        runner, size, here = stack.enter_context(_runner(kind, count, address))
        task = _task(here)

        def all_requests() -> None:
            failures = 0
            for request in given.requests():
                for found in _mapped(task, request, size):
                    failures += "code" in found
                    tell(found)
            if failures:
                raise SomeFailed(f"pieces that failed: {failures}")

        _body.append(all_requests)

        @flow(name="shards", flow_run_name=name, task_runner=runner, persist_result=False)
        def shards() -> None:
            # The flow is sent to the workers with every task, so it must not hold local objects.
            from flows.shards import _body

            _body[0]()

        token = os.environ.get("LEXMILL_RUN")
        try:
            with tags(*([f"lexmill.run:{token}"] if token else [])), suppress(SomeFailed):
                shards()
        finally:
            # The server may end next, and sending to a dead one takes half a minute.
            APILogWorker.drain_all(timeout=_DRAIN_SECONDS)
            EventsWorker.drain_all(timeout=_DRAIN_SECONDS)


def _check_server(address: str) -> None:
    """Raise where the server does not answer, or the workers of a cluster elsewhere cannot reach it."""
    url = os.environ.get("PREFECT_API_URL", "")
    if url and not answers(f"{url}/health"):
        raise RetryableError(f"the Prefect server at {url} does not answer; start it, or correct PREFECT_API_URL")
    cluster, server = urlsplit(address if "//" in address else f"//{address}").hostname, urlsplit(url).hostname
    if cluster and _is_here(server) and not _is_here(cluster):
        raise UserError(
            f"the workers of {address} cannot reach the Prefect server at {url}, to which they report; start one that"
            " they reach, and set PREFECT_API_URL to it"
        )


def _is_here(host: str | None) -> bool:
    return host in (None, "", "localhost", "::1") or str(host).startswith("127.")


@contextmanager
def _runner(kind: str, count: int, address: str) -> Iterator[tuple[Any, Callable[[], int], Processes | None]]:
    """Yield the task runner, a function for how many pieces its workers take at once, and local processes."""
    if kind == "prefect":
        from prefect.task_runners import ThreadPoolTaskRunner

        # A thread of Prefect's waits for a process of ours.
        with Processes(count) as pool:
            yield ThreadPoolTaskRunner(max_workers=2 * count), lambda: count, pool
    elif kind == "dask":
        from prefect_dask.task_runners import DaskTaskRunner

        with _dask(count, address) as client:
            yield (
                DaskTaskRunner(address=client.scheduler.address),
                lambda: count or sum(client.nthreads().values()),
                None,
            )
    else:
        with _ray(count, address) as cores:
            from prefect_ray.task_runners import RayTaskRunner

            yield RayTaskRunner(), lambda: count or cores(), None


@contextmanager
def _dask(count: int, address: str) -> Iterator[Any]:
    """Yield a client of the cluster at an address, or of a local one for the block."""
    import dask
    import distributed

    with ExitStack() as stack:
        if not address:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dask-"))
            stack.enter_context(dask.config.set({"temporary-directory": folder}))
            cluster = distributed.LocalCluster(
                n_workers=count, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs="CRITICAL"
            )
            address = stack.enter_context(cluster).scheduler_address
        client = stack.enter_context(distributed.Client(address, set_as_default=False))
        try:
            client.wait_for_workers(1, timeout=_WORKERS_SECONDS)
        except TimeoutError:
            raise RetryableError(f"the Dask cluster at {address} has no workers; start some") from None
        yield client


@contextmanager
def _ray(count: int, address: str) -> Iterator[Callable[[], int]]:
    """Connect to the cluster at an address, or to a local one for the block; yield a count of its cores."""
    if not address:
        # A token for this cluster alone, not in the user's home.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray

    with ExitStack() as stack:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical"}
        if address:
            options["address"] = address
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
            options |= {"num_cpus": count, "include_dashboard": False, "_temp_dir": folder}
            options |= {"_node_ip_address": "127.0.0.1", "object_store_memory": _OBJECT_STORE_BYTES}
        try:
            _let_in(options)
        except ConnectionError as error:
            raise RetryableError(
                f"the Ray cluster at {address} did not let us in ({error}); does it run, and is RAY_AUTH_MODE set here"
                " as it is there?"
            ) from None
        stack.callback(ray.shutdown)
        yield lambda: max(1, int(ray.cluster_resources().get("CPU", 1)))


def _let_in(options: dict[str, Any]) -> None:
    """Connect to Ray, in several tries: its head may fail to start a process for the client."""
    import ray

    for _ in range(_TRIES - 1):
        with suppress(ConnectionAbortedError):
            ray.init(**options)
            return
    ray.init(**options)


def _task(here: Processes | None) -> Any:
    """Return the task of a piece; functions for other machines are local, so they are sent by value."""
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    def again(_task: Any, _run: Any, state: Any) -> bool:
        found = getattr(state.result(raise_on_failure=False), "outcome", {})
        return found.get("code") == 75 and "fatal" not in found

    def far(item: dict[str, Any], work: str, common: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        from lexmill.compute.workers.remote import work_on

        return work_on(work, common, wanted, item)

    def near(item: Plain, work: str, common: Plain, wanted: Plain) -> Plain:
        from lexmill.compute.workers.remote import PieceFailed

        assert here is not None
        module, _, name = work.partition(":")
        found = here.submit(getattr(import_module(module), name), {**common, **item}).result()
        if "code" in found:
            raise PieceFailed(found)
        return found

    options: dict[str, Any] = {"name": "piece", "cache_policy": NO_CACHE, "persist_result": False}
    options |= {"retries": len(RETRY_PAUSES), "retry_delay_seconds": RETRY_PAUSES, "retry_condition_fn": again}
    return task(far if here is None else near, **options)


def _mapped(task: Any, request: Plain, size: Callable[[], int]) -> Iterator[Plain]:
    """Yield the outcomes of the pieces in order; at most two per worker are in progress."""
    from prefect import unmapped

    fixed = {key: unmapped(request[key]) for key in ("work", "common", "wanted")}
    waiting: deque[Any] = deque()
    left = iter(request["items"])
    while True:
        room = 2 * size() - len(waiting)
        if room >= size() and (wave := list(islice(left, room))):
            waiting.extend(task.map(wave, **fixed))
        if not waiting:
            return
        yield _outcome(waiting.popleft())


def _outcome(future: Any) -> Plain:
    try:
        found = future.result(raise_on_failure=False)
    except Exception as error:  # the runner's own: the task has no state
        found = error
    if isinstance(found, dict):
        return found
    if hasattr(found, "outcome"):
        return dict(found.outcome)
    if type(found).__name__ in _LOST:
        return {"code": EXIT_RETRY, "messages": [str(lost_worker())], "fatal": True}
    if isinstance(found, ImportError):
        missing = f"a worker lacks what it needs ({found}); install lexmill with its lock file there, and start it anew"
        return {"code": EXIT_USER, "messages": [missing], "fatal": True}
    lines = traceback.format_exception(found) if isinstance(found, BaseException) else [repr(found)]
    return {"code": EXIT_BUG, "messages": ["".join(lines).rstrip()], "fatal": True}


if __name__ == "__main__":
    from flows.shards import main as imported  # objects sent to workers must not belong to `__main__`

    imported()
