"""When a longer training may resume from a shorter one's checkpoint.

It may if both had the same learning rate at every earlier step: always under a constant or inverse-square-root
schedule, under warm-up-stable-decay until the shorter one begins to decay, never under cosine or linear, where every
rate depends on the length.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from lexmill.params.optimizers import ConstantSchedule, InverseSquareRootSchedule, WarmupStableDecaySchedule
from lexmill.training.checkpoints import CheckpointFolder
from lexmill.training.settings import TrainingSettings


def open_end(settings: TrainingSettings) -> int:
    """Return the last step whose state a longer training shares; 0: none."""
    if isinstance(settings.schedule, ConstantSchedule | InverseSquareRootSchedule):
        return settings.steps
    if isinstance(settings.schedule, WarmupStableDecaySchedule):
        return max(0, settings.steps - settings.decay_steps)
    return 0


def identity(settings: TrainingSettings) -> dict[str, Any]:
    """Return the settings that name the checkpoint folder: without the length if a longer training can resume."""
    plain = dataclasses.asdict(settings)
    if open_end(settings):
        del plain["steps"]
    return plain


def usable(settings: TrainingSettings, state: dict[str, Any]) -> bool:
    """Return whether this training can resume from a checkpoint of the same folder.

    Args:
        state: the checkpoint's; `length` and `open_end` are those of the training that made it.
    """
    step: int = state["step"]
    if state["length"] == settings.steps:
        return step <= settings.steps
    return step <= min(state["open_end"], open_end(settings))


def refusal(folder: CheckpointFolder, settings: TrainingSettings) -> str | None:
    """Return why a shorter training's existing checkpoint is not used; None if there is none."""
    if open_end(settings):
        return None

    def without_length(whole: dict[str, Any]) -> dict[str, Any]:
        return {**whole, "settings": {**whole["settings"], "steps": None}}

    shorter = [
        (other["settings"]["steps"], path)
        for path, other in folder.relatives(without_length)
        if other["settings"]["steps"] < settings.steps
    ]
    if not shorter:
        return None
    steps, path = max(shorter)
    return (
        f"the checkpoint of {steps} steps in {path} cannot be resumed: under the {settings.schedule.name} schedule"
        f" every learning rate depends on the length. This training of {settings.steps} steps starts anew;"
        " constant, inverse_square_root and warmup_stable_decay can be lengthened"
    )
