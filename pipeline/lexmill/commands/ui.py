"""`lexmill ui`: serve the MLflow and Prefect pages of this workspace on 127.0.0.1 until Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

from lexmill import kinds, params
from lexmill.base import workspace
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.progress import bar, say
from lexmill.commands import servers
from lexmill.compute import execution

_LOOK_SECONDS = 2.0


def ui() -> None:
    """Serve until Ctrl-C or SIGTERM.

    Raises:
        RetryableError: a server does not start, or ends; or the pages are already served.
    """
    root = Path.cwd()
    settings = execution.load_execution(root)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with workspace.only_one("ui", root), ExitStack() as stack:
        mlflow = _mlflow(settings.tracking_uri, root, stack)
        prefect = _prefect(root, stack)
        started = [server for server in (mlflow, prefect) if server is not None]
        with bar("starting the servers"):
            for server in started:
                _wait(server, ended)
        if ended.is_set():
            return
        _links(settings.tracking_uri, mlflow, prefect, root)
        _watch(started, prefect is None and servers.configured_prefect() is None, root, stack, ended)


def _wait(server: servers.Server, ended: threading.Event) -> None:
    deadline = time.monotonic() + servers.START_SECONDS
    while not ended.is_set():
        try:
            server.wait(seconds=0.5)
            return
        except RetryableError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise


def _mlflow(uri: str, root: Path, stack: ExitStack) -> servers.Server | None:
    """Serve a local store; return None if the store is itself a server."""
    if uri.startswith(("http://", "https://")):
        return None
    from lexmill.tracking.store import absolute_uri, prepare

    prepare(uri, root)
    return stack.enter_context(servers.serving_mlflow(absolute_uri(uri, root), root))


def _prefect(root: Path, stack: ExitStack) -> servers.Server | None:
    """Serve the workspace's database; return None if the user has configured a server or a run serves it now."""
    if servers.configured_prefect() is not None or servers.running_prefect(root) is not None:
        return None
    return stack.enter_context(servers.serving_prefect(root))


def _links(uri: str, mlflow: servers.Server | None, prefect: servers.Server | None, root: Path) -> None:
    from lexmill.tracking.links import base_url

    base = mlflow.url if mlflow is not None else base_url(uri)
    # MLflow opens a view for chat applications by default; these addresses open the training runs.
    for line in _runs(base, uri, mlflow, root) or [f"MLflow   {base}/#/experiments?workflowType=machine_learning"]:
        say(line)
    page = prefect.url if prefect is not None else servers.running_prefect(root)
    say(f"Prefect  {page}" if page else f"Prefect  {servers.configured_prefect()}")
    say("report   reports/index.html    Ctrl-C ends the servers")


def _runs(base: str, uri: str, mlflow: servers.Server | None, root: Path) -> list[str]:
    """Return the addresses of this workspace's runs and the comparison of its models; none if nothing is published.

    Only our own store is asked: another may be slow, or want a password.
    """
    from lexmill.registry.lookup import champion
    from lexmill.tracking.links import compare_url, experiment_url
    from lexmill.tracking.view import TAG, state

    if mlflow is None or not (root / "params.yaml").is_file():
        return []
    try:
        choices = params.load(root / "params.yaml")
    except UserError:
        return []  # `lexmill check` reports it; the pages work without
    found = servers.ask(mlflow, f"experiments/get-by-name?{urlencode({'experiment_name': choices.experiment})}")
    if found is None:
        return []
    experiment = found["experiment"]["experiment_id"]
    view = {"experiment_id": experiment, "key": TAG, "value": state(kinds.metric_names())}
    servers.ask(mlflow, "experiments/set-experiment-tag", view)
    lines = [f"MLflow   {experiment_url(base, experiment)}"]
    # Models of one kind share metrics; if no kind has two models, compare all.
    most = max((list(choices.of_kind(kind)) for kind in kinds.names()), key=len)
    champions = [champion(uri, name, root) for name in (most if len(most) > 1 else choices.models)]
    runs = [one.run_id for one in champions if one is not None]
    if len(runs) > 1:
        lines.append(f"compare  {compare_url(base, experiment, runs)}")
    return lines


def _watch(started: list[servers.Server], borrowed: bool, root: Path, stack: ExitStack, ended: threading.Event) -> None:
    """Wait for the end; start our own Prefect server when the run whose server is shown (`borrowed`) ends."""
    while not ended.wait(_LOOK_SECONDS):
        for server in started:
            if server.process.poll() is not None:
                raise RetryableError(f"the {server.name} server ended; see {server.log}")
        if borrowed and servers.running_prefect(root) is None:
            borrowed = False
            server = stack.enter_context(servers.serving_prefect(root))
            _wait(server, ended)
            started.append(server)
            say(f"Prefect  {server.url}")
