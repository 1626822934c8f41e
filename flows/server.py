"""Find or start the Prefect server of a flow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lexmill.base.progress import bar
from lexmill.commands import servers

# By default Prefect waits a minute for an answer, six times. A busy server (429) is waited for as long as it says.
_MANNERS = {"PREFECT_API_REQUEST_TIMEOUT": "5", "PREFECT_CLIENT_MAX_RETRIES": "1"}


@contextmanager
def prefect_server(root: Path) -> Iterator[Callable[[], None]]:
    """Set PREFECT_API_URL for the block: the configured server, the one running here, or a new one.

    Yield a function that waits until it answers. Import Prefect only afterwards: it reads its settings once.
    """
    configured = servers.configured_prefect()
    for name, value in _MANNERS.items():
        if servers.prefect_setting(name) is None:
            os.environ[name] = value
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
