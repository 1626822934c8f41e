"""How a network is trained: one recipe for every kind of model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.strict import spec
from lexmill.params.length import Length
from lexmill.params.optimizers import Optimizer, Schedule, WarmupStableDecaySchedule

Precision = Literal["32-true", "bf16-mixed"]
Keep = Literal["last", "best", "average", "average_best", "ema"]
MOST_BATCH = 1_000_000_000


@dataclass(frozen=True)
class Method:
    """How a model's weights are found; a subclass has what its method needs."""

    method: str = spec("how the weights are found")


@dataclass(frozen=True)
class Steps(Method):
    """Steps of an optimizer along a gradient: what each such recipe has, whatever its method."""

    optimizer: Optimizer = spec("the optimizer")
    schedule: Schedule = spec("the learning-rate schedule")
    length: Length = spec("how long it trains: '700 steps', '1.5e6 tokens', '3 epochs'")
    batch: int = spec(
        "targets in one optimizer step, over all devices: tokens, or texts where each has one", low=1, high=MOST_BATCH
    )
    precision: Precision = spec("arithmetic of the training", "32-true")
    clip_norm: float = spec("largest norm of the gradient; 0: no clipping", 1.0, low=0, high=1e6)
    validate_every: Length = spec("between validations: '100 steps', '0.25 epochs'", Length(100, "steps"))
    patience: int = spec("validations without gain before stopping; 0: never", 0, low=0, high=1_000_000)
    keep: Keep = spec("which weights are the model", "best")
    averaged: int = spec(
        "of how many validations the weights are averaged, for keep: average and average_best", 5, low=1, high=1000
    )
    ema_decay: float = spec("decay a step of the running mean of the weights, for keep: ema", 0.999, low=0, below=1)

    def errors(self) -> list[str]:
        found = []
        if self.length.amount <= 0:
            found.append("length: it must be above 0")
        warmup = self.schedule.warmup
        same_unit = warmup.unit == self.length.unit and self.length != Length(1, "steps")
        if same_unit and warmup.amount >= self.length.amount:
            found.append(f"schedule.warmup: {warmup} must be below length ({self.length})")
        if self.length.unit == "percent":
            found.append(f"length: {self.length} of what? give steps, tokens or epochs")
        parts = [warmup, *([self.schedule.decay] if isinstance(self.schedule, WarmupStableDecaySchedule) else [])]
        if sum(part.amount for part in parts if part.unit == "percent") > 100:
            found.append("schedule: warm-up and decay take more than 100 % of length")
        if self.validate_every.amount <= 0:
            found.append("validate_every: it must be above 0")
        return found


@dataclass(frozen=True)
class Recipe(Steps):
    """Steps of an optimizer along a gradient."""

    method: Literal["gradient"] = spec("how the weights are found")
