"""The learning rate as a pure function of the optimizer step: nothing to save, nothing to miscount."""

from __future__ import annotations

import math

from lexmill.params import CosineSchedule, InverseSquareRootSchedule, LinearSchedule, Schedule


def factor(schedule: Schedule, step: int, steps: int) -> float:
    """The share of the peak learning rate that optimizer step `step` (from 1) of `steps` uses.

    Warm-up rises linearly and reaches 1 at step `warmup_steps`. Past `steps` the last value holds.
    """
    if step < 1:
        raise ValueError(f"optimizer steps count from 1, got {step}")
    warmup = schedule.warmup_steps
    if step < warmup:
        return step / warmup
    if isinstance(schedule, InverseSquareRootSchedule):
        return math.sqrt(warmup / step)
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    if isinstance(schedule, CosineSchedule):
        share = 0.5 * (1 + math.cos(math.pi * progress))
    else:
        assert isinstance(schedule, LinearSchedule)
        share = 1 - progress
    return schedule.final_fraction + (1 - schedule.final_fraction) * share
