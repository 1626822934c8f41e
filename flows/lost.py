"""Close a flow run whose process died (kill -9, a power cut): Prefect's page would show it as "Running".

.lexmill/flow_run.json      the flow run of this workspace; exists while it runs, and after its death
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from lexmill.base import storage
from lexmill.base.workspace import HOME

MESSAGE = "its process died; closed by the next run of the workspace"


@contextmanager
def noted(root: Path, flow_run: UUID) -> Iterator[None]:
    """Close a dead flow run of this workspace, and note this one during the block; the workspace must be held."""
    path = root / HOME / "flow_run.json"
    _close(path)
    storage.write_json(path, {"flow_run": str(flow_run)})
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _close(path: Path) -> None:
    try:
        dead = UUID(storage.read_json(path)["flow_run"])
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(dead).state
            if state is not None and not state.is_final():
                client.set_flow_run_state(dead, Crashed(message=MESSAGE), force=True)
    except (OSError, ValueError, KeyError, TypeError):
        return  # none, or half-written
    except (HTTPError, ObjectNotFound):
        return  # another server by now, or it is away
