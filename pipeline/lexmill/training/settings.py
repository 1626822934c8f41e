"""The settings of one training, as the engine takes them."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.params.optimizers import Optimizer, Schedule
from lexmill.params.recipe import Keep, Precision


@dataclass(frozen=True)
class TrainingSettings:
    """What identifies a training, besides its task.

    Attributes:
        steps: optimizer steps.
        warmup_steps, decay_steps: the schedule's lengths in optimizer steps.
        seed: of all that the network draws (dropout); each micro-batch of each step has its own numbers.
        clip_norm: largest gradient norm; 0: no clipping.
        validate_every: steps between validations; the last step is always followed by one.
        keep: which weights are the result: the last, the best on the task's metric, the mean of the
            `averaged` last or best ones validated, or the running mean over all steps with decay `ema_decay`.
        patience: stop after so many validations without a new best; 0: never.
    """

    optimizer: Optimizer
    schedule: Schedule
    steps: int
    seed: int
    warmup_steps: int = 0
    decay_steps: int = 0
    precision: Precision = "32-true"
    clip_norm: float = 1.0
    validate_every: int = 100
    keep: Keep = "best"
    averaged: int = 5
    ema_decay: float = 0.999
    patience: int = 0
