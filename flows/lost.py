"""A flow run whose process died (kill -9, a power cut) stays "Running" on Prefect's page: the next one closes it.

.lexmill/flow_run.json      the flow run that is at work in this workspace; there only while it is, or after its death
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

MESSAGE = "its process died; told by the next run of the workspace"


@contextmanager
def noted(root: Path, flow_run: UUID) -> Iterator[None]:
    """Close the flow run that died here, if one did, and note this one for the length of the block.

    The workspace must be held: then whatever is noted is dead.
    """
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
        return  # none, or half written by what died
    except (HTTPError, ObjectNotFound):
        return  # another server by now, or one that is away: its page is no part of the run
