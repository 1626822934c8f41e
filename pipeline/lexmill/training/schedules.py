"""The learning rate as a pure function of the optimizer step (one update of the weights): nothing to save."""

from __future__ import annotations

import math

from lexmill.params.optimizers import (
    ConstantSchedule,
    CosineSchedule,
    InverseSquareRootSchedule,
    LinearSchedule,
    Schedule,
    WarmupStableDecaySchedule,
)


def factor(schedule: Schedule, step: int, *, steps: int, warmup: int, decay: int = 0) -> float:
    """Return the share of the peak learning rate at optimizer step `step` (from 1) of `steps`.

    Warm-up rises linearly and reaches 1 at step `warmup`. Past `steps` the last value stays (inverse square root has
    no end). The share is between 0 and 1.

    Args:
        schedule: the form; its lengths in steps are `warmup` and, for warm-up-stable-decay, `decay`.
    """
    if step < 1:
        raise ValueError(f"optimizer steps count from 1, got {step}")
    if step < warmup:
        return step / warmup
    if isinstance(schedule, ConstantSchedule):
        return 1.0
    if isinstance(schedule, InverseSquareRootSchedule):
        return math.sqrt(max(1, warmup) / step)
    start = max(warmup, steps - decay) if isinstance(schedule, WarmupStableDecaySchedule) else warmup
    progress = min(1.0, max(0, step - start) / max(1, steps - start))
    if isinstance(schedule, CosineSchedule):
        share = 0.5 * (1 + math.cos(math.pi * progress))
    else:
        assert isinstance(schedule, LinearSchedule | WarmupStableDecaySchedule)
        share = 1 - progress
    return schedule.final_fraction + (1 - schedule.final_fraction) * share
