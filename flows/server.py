"""The Prefect server that a flow talks to: the configured one, the one that runs here, or one of our own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lexmill.base.progress import bar
from lexmill.commands import servers


@contextmanager
def prefect_server(root: Path) -> Iterator[Callable[[], None]]:
    """PREFECT_API_URL for the block: the configured server, the one that runs here, or one of our own.

    Prefect must not be imported before: it reads its settings once. Yields what waits until the server answers.
    """
    configured = servers.configured_prefect()
    if configured is not None:
        servers.ask_prefect(configured)
        yield lambda: None
        return
    os.environ["PREFECT_HOME"] = str(servers.prefect_home(root))
    url = servers.running_prefect(root)
    if url is not None:
        os.environ["PREFECT_API_URL"] = f"{url}/api"
        yield lambda: None
        return
    with servers.serving_prefect(root) as server:
        os.environ["PREFECT_API_URL"] = f"{server.url}/api"

        def wait() -> None:
            with bar("starting the Prefect server"):
                server.wait()

        try:
            yield wait
        finally:
            os.environ.pop("PREFECT_API_URL", None)
