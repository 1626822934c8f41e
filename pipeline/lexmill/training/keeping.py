"""Which weights a training keeps, and when it stops early.

`ema` keeps the running mean of the weights after each step, with Adam's bias correction: after t steps of decay d, step
i weighs d^(t - i) (1 - d) / (1 - d^t), so the random initial weights have no part in it. Validation then uses the mean.
Cost: one more copy of the weights, on the training's device, and one pass over it per step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lexmill.models.common.state import average, load_weights, snapshot, weights
from lexmill.params.recipe import Keep
from lexmill.training.ranks import local

Snapshot = dict[str, Tensor]


@dataclass
class Keeper:
    """Chooses the best weights by validation; its whole state can be saved and restored."""

    metric: str
    higher_is_better: bool
    keep: Keep
    averaged: int = 5
    patience: int = 0
    ema_decay: float = 0.999
    best: float | None = None
    best_step: int = 0
    validations_without_gain: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    best_weights: Snapshot | None = None
    kept: list[tuple[float, Snapshot]] = field(default_factory=list)
    mean: Snapshot | None = None
    updates: int = 0

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Update the running mean after an optimizer step."""
        if self.keep != "ema":
            return
        own = weights(module)  # tied weights come once
        self.updates += 1
        if self.mean is None:
            self.mean = {name: value.clone() for name, value in own.items()}
            return
        share = (1 - self.ema_decay) / (1 - self.ema_decay**self.updates)
        self.mean = {name: value.to(own[name].device) for name, value in self.mean.items()}
        averaged = [name for name, value in own.items() if value.is_floating_point()]
        torch._foreach_lerp_([local(self.mean[n]) for n in averaged], [local(own[n]) for n in averaged], share)
        for name in own.keys() - set(averaged):  # counts and the like: the current ones
            local(self.mean[name]).copy_(local(own[name]))

    @contextmanager
    def shown(self, module: nn.Module) -> Iterator[None]:
        """Give the module the weights to validate while the context lasts: the mean under `ema`, else its own."""
        if self.mean is None:
            yield
            return
        own = {name: local(value) for name, value in weights(module).items()}
        aside = {name: value.clone() for name, value in own.items()}
        try:
            self._copy(self.mean, own)
            yield
        finally:
            self._copy(aside, own)

    @staticmethod
    @torch.no_grad()
    def _copy(source: Snapshot, into: Snapshot) -> None:
        for name, value in into.items():
            value.copy_(local(source[name]))

    def record(self, step: int, metrics: dict[str, float], module: nn.Module) -> None:
        """Record the validation metrics of the weights as `shown` after `step` steps; the first of equals is kept."""
        value = metrics[self.metric]
        better = math.isfinite(value) and (
            self.best is None or (value > self.best if self.higher_is_better else value < self.best)
        )
        if better:
            self.best, self.best_step, self.validations_without_gain = value, step, 0
            if self.keep == "best":
                self.best_weights = snapshot(module)
        else:
            self.validations_without_gain += 1
        if better or self.keep != "best":
            self.metrics = dict(metrics)
        if self.keep == "average":
            self.kept = [*self.kept, (value, snapshot(module))][-self.averaged :]
        elif self.keep == "average_best" and math.isfinite(value):
            self._keep_best(value, module)

    def _keep_best(self, value: float, module: nn.Module) -> None:
        """Keep the weights if they are among the best; of equals the first are."""
        if len(self.kept) == self.averaged:
            worst = self.kept[-1][0]
            if not (value > worst if self.higher_is_better else value < worst):
                return
            self.kept.pop()
        self.kept.append((value, snapshot(module)))
        self.kept.sort(key=lambda one: -one[0] if self.higher_is_better else one[0])

    @property
    def exhausted(self) -> bool:
        """Whether patience is exhausted."""
        return 0 < self.patience <= self.validations_without_gain

    def apply(self, module: nn.Module) -> bool:
        """Load the kept weights into the module; return whether they are new, not validated yet."""
        if self.keep == "best" and self.best_weights is not None:
            load_weights(module, self.best_weights)
        elif self.kept:
            load_weights(module, average([one for _, one in self.kept]))
            return len(self.kept) > 1 or self.keep == "average_best"
        elif self.mean is not None:
            self._copy(self.mean, {name: local(value) for name, value in weights(module).items()})
        return False

    def state(self) -> dict[str, Any]:
        """Return the part of its state that JSON can hold."""
        return {
            "best": self.best,
            "best_step": self.best_step,
            "validations_without_gain": self.validations_without_gain,
            "metrics": {k: v if math.isfinite(v) else None for k, v in self.metrics.items()},
            "kept": [value if math.isfinite(value) else None for value, _ in self.kept],
            "updates": self.updates,
        }

    def tensors(self) -> dict[str, Snapshot]:
        """Return the weights it holds, by file name."""
        files = {f"kept-{index}": one for index, (_, one) in enumerate(self.kept)}
        if self.best_weights is not None:
            files["best"] = self.best_weights
        if self.mean is not None:
            files["ema"] = self.mean
        return files

    def restore(self, state: dict[str, Any], tensors: dict[str, Snapshot]) -> None:
        """Restore what `state` and `tensors` returned."""
        self.best, self.best_step = state["best"], state["best_step"]
        self.validations_without_gain = state["validations_without_gain"]
        self.metrics = {k: math.nan if v is None else v for k, v in state["metrics"].items()}
        self.best_weights = tensors.get("best")
        values = [math.nan if value is None else value for value in state["kept"]]
        self.kept = [(value, tensors[f"kept-{index}"]) for index, value in enumerate(values)]
        self.mean, self.updates = tensors.get("ema"), state["updates"]
