"""Find or start the Prefect server of a flow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lexmill.base.progress import bar
from lexmill.commands import servers


@contextmanager
def prefect_server(root: Path) -> Iterator[Callable[[], None]]:
    """Set PREFECT_API_URL for the block: the configured server, the one running here, or a new one.

    Yield a function that waits until it answers. Import Prefect only afterwards: it reads its settings once.
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
