"""A stage that has no place yet is shown as "Waiting" on Prefect's page, not as one that runs.

To Prefect a task runs from the moment at which those before it have ended: a training that waits for another one's
cores would be a long bar, and its seconds not its own. What a task's state is, a run tells the server by events; here
are two more of them, "Waiting" and the "Running" after it, from which the bar then begins.
"""

from __future__ import annotations

from typing import Any, cast

from prefect.client.schemas.objects import State, StateType, TaskRun
from prefect.states import Running
from prefect.utilities.engine import emit_task_run_state_change_event

WAITING = "Waiting"


class Turns:
    """Tells the page whether a task waits or runs; Prefect's engine goes on from the state that is told last."""

    def __init__(self, task_run: TaskRun) -> None:
        self._task_run = task_run

    def wait(self, why: str) -> None:
        """It cannot go on for now."""
        self._tell(State(type=StateType.PENDING, name=WAITING, message=why))

    def begin(self) -> None:
        """It goes on; one that did not have to wait is shown so already."""
        if self._task_run.state is None or self._task_run.state.name != WAITING:
            return
        state: State[None] = Running()
        if self._task_run.run_count == 1:  # else the bar begins with the first try
            self._task_run.start_time = cast(Any, state.timestamp)  # one type at run time, two to a type checker
        self._tell(state)

    def _tell(self, state: State[None]) -> None:
        run, before = self._task_run, self._task_run.state
        if before is not None and before.is_running():  # the engine adds it up only where it changes the state itself
            run.total_run_time += cast(Any, state.timestamp) - cast(Any, before.timestamp)
        state.state_details.task_run_id, state.state_details.flow_run_id = run.id, run.flow_run_id
        run.state, run.state_id, run.state_type, run.state_name = state, state.id, state.type, state.name
        emit_task_run_state_change_event(run, initial_state=before, validated_state=state)
