"""Approval before a new version becomes champion: the run pauses, shows the metrics, and asks on the page.

Prefect's own `pause_flow_run` fails the run without an answer and ignores a cancel; here silence is a no, the run
continues, and a cancel ends the question. The run stays alive and holds the workspace while it waits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast
from uuid import UUID

from httpx import HTTPError
from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.client.schemas.responses import SetStateStatus
from prefect.context import FlowRunContext
from prefect.input import RunInput
from prefect.input.run_input import Keyset, keyset_from_paused_state
from prefect.states import Paused
from pydantic import Field

from lexmill.base.errors import Terminated
from lexmill.commands.run_pages import proposal_markdown, proposal_sentence, slug
from lexmill.runner.session import Session

if TYPE_CHECKING:
    from lexmill.registry.publish import Proposal

LOOK_SECONDS = 2.0
_CANCELLED = "cancelled while it waited for approval"
_SPARE_SECONDS = 600  # the server's time-out, which fails the run, must be later than ours


class Answer(RunInput):
    """The form of a paused run."""

    approve: bool = Field(default=False, description="On: the new version becomes champion. Off: it stays beside it.")
    about: str = Field(default="", description="The question that this answers, filled in.")


class Asking:
    """Ask about each proposal in turn, for at most `seconds` each."""

    def __init__(self, session: Session, seconds: float) -> None:
        self._session, self._seconds = session, seconds
        self._asked = 0

    def __call__(self, proposal: Proposal) -> bool:
        """Return whether a person approved in time.

        Raises:
            Terminated: the run was cancelled meanwhile.
        """
        context = FlowRunContext.get()
        assert context is not None
        assert context.flow_run is not None
        flow_run = context.flow_run.id
        self._asked += 1
        key = f"{self._asked}-{slug(proposal.name)}-v{proposal.version}"
        create_markdown_artifact(
            proposal_markdown(proposal), key=f"approval-{slug(proposal.name)}", description=proposal_sentence(proposal)
        )
        _pause(flow_run, key, proposal, self._seconds + _SPARE_SECONDS)
        said = (
            f"{proposal_sentence(proposal)} Resume the run (the menu at the top right) on the Prefect page to answer."
        )
        get_run_logger().warning("%s", said)
        self._session.display.note(said)
        answer = self._wait(flow_run, key)
        heard = {None: "nobody answered in time: not approved", True: "approved", False: "not approved"}[answer]
        get_run_logger().info("%s: %s", proposal.name, heard)
        self._session.display.note(f"{proposal.name}: {heard}")
        return bool(answer)

    def _wait(self, flow_run: UUID, key: str) -> bool | None:
        """Return the answer; None when the time is up."""
        deadline = time.monotonic() + self._seconds
        with get_client(sync_client=True) as client:
            while (left := deadline - time.monotonic()) > 0:
                if self._session.stop.wait(min(LOOK_SECONDS, left)):
                    raise Terminated(_CANCELLED)
                try:
                    if _goes_on(client, flow_run):
                        return _answer(flow_run, key)
                except HTTPError:
                    continue  # the server is away, so nobody can answer either
            client.resume_flow_run(flow_run, run_input={"approve": False})
            # An answer or a cancel may have come in the last moment; the server's counts.
            if not _goes_on(client, flow_run):
                raise Terminated(_CANCELLED)
            return _answer(flow_run, key) or None


def _goes_on(client: SyncPrefectClient, flow_run: UUID) -> bool:
    state = client.read_flow_run(flow_run).state
    return state is not None and state.is_running()


def _answer(flow_run: UUID, key: str) -> bool:
    return cast(Answer, Answer.load(_keyset(key), flow_run)).approve


def _keyset(key: str) -> Keyset:
    return keyset_from_paused_state(Paused(timeout_seconds=1, pause_key=key))


def _pause(flow_run: UUID, key: str, proposal: Proposal, seconds: float) -> None:
    """Pause the run, so that the page shows the form."""
    state: State[None] = Paused(timeout_seconds=round(seconds), pause_key=key)
    state.state_details.run_input_keyset = {str(name): value for name, value in _keyset(key).items()}
    with get_client(sync_client=True) as client:
        result = client.set_flow_run_state(flow_run, state)
    if result.status != SetStateStatus.ACCEPT:
        raise Terminated(f"cancelled before {proposal.name} could be approved")  # nothing else refuses a pause
    # After the state: at a new pause the server forgets the forms of this name.
    # The server refuses an answer about another question, from a form that was still open.
    question = proposal_sentence(proposal)
    about = Field(default=question, json_schema_extra={"enum": [question]})
    Answer.with_initial_data(proposal_markdown(proposal), about=about).save(_keyset(key), flow_run)
