"""Where a stage runs by the execution settings: its launcher, devices, memory and time."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.compute.settings import ELSEWHERE, EVALUATION, TRAINING, TRANSLATION, LauncherName, entry_of, group_of


@dataclass(frozen=True)
class Place:
    """A stage's place.

    Attributes:
        gpus: of each machine, for it alone.
        cpus: cores for it alone; 0: it shares the machine's.
        memory: mebibytes that its job asks for; 0: not said.
        seconds: longest that it may run; 0: no end.
        nodes: machines.
        processes: of each machine.
    """

    stage: str
    launcher: LauncherName
    gpus: int
    cpus: int
    memory: int
    seconds: float
    nodes: int
    processes: int

    @property
    def elsewhere(self) -> bool:
        """Return whether a cluster runs it, not this machine."""
        return self.launcher in ELSEWHERE


def place_of(stage: str, execution: Execution) -> Place:
    """Return the place of a stage; torchrun starts only trainings."""
    entry, group = entry_of(execution.stages, stage), group_of(stage)
    trains = group == TRAINING
    gpus = entry.gpus
    if gpus is None:
        needed = execution.devices if trains else int(group in (EVALUATION, TRANSLATION))
        gpus = needed if execution.accelerator == "cuda" else 0
    return Place(
        stage=stage,
        launcher="local" if entry.launcher == "torchrun" and not trains else entry.launcher,
        gpus=gpus,
        cpus=entry.cpus,
        memory=entry.memory.mebibytes,
        seconds=entry.time.seconds,
        nodes=execution.nodes if trains else 1,
        processes=execution.devices if trains else 1,
    )


def check_others_started(place: Place) -> None:
    """Check that a training over several machines was started on the others too, else it would wait for hours.

    Raises:
        UserError: MASTER_ADDR is not set.
    """
    if place.nodes > 1 and not place.elsewhere and "MASTER_ADDR" not in os.environ:
        raise UserError(
            f"nodes: {place.nodes}, but the training was started on this machine alone; start"
            " infra/torchrun/stage.sh on each (docs/launchers.md), choose the launcher slurm, or set nodes to 1"
        )
