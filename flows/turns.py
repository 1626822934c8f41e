"""Show a stage without a free place as "Waiting" on Prefect's page, not as running.

For Prefect a task runs once those before it have ended, so waiting for cores would count as running time. Runs report
task states to the server by events; here two more are sent, "Waiting" and then "Running", from which the bar begins.
"""

from __future__ import annotations

from typing import Any, cast

from prefect.client.schemas.objects import State, StateType, TaskRun
from prefect.states import Running
from prefect.utilities.engine import emit_task_run_state_change_event

WAITING = "Waiting"


class Turns:
    """Report to the page whether a task waits or runs; Prefect's engine continues from the last state."""

    def __init__(self, task_run: TaskRun) -> None:
        self._task_run = task_run

    def wait(self, why: str) -> None:
        """Report that the task waits."""
        self._tell(State(type=StateType.PENDING, name=WAITING, message=why))

    def begin(self) -> None:
        """Report that the task runs, if it had to wait."""
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
