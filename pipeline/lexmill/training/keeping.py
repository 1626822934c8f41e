"""Which weights a training keeps, and when it stops early."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from lexmill.models.common.state import average, load_weights, snapshot

Snapshot = dict[str, Tensor]


@dataclass
class Keeper:
    """Follows the looks at the valid split; all of its state can be saved and put back."""

    metric: str
    higher_is_better: bool
    keep: Literal["last", "best", "average", "ema"]
    average_last: int = 5
    patience: int = 0
    best: float | None = None
    best_step: int = 0
    looks_without_gain: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    best_weights: Snapshot | None = None
    recent: list[Snapshot] = field(default_factory=list)

    def look(self, step: int, metrics: dict[str, float], module: nn.Module) -> None:
        """Take note of the metrics of the weights as they are after `step` steps.

        Better means strictly better, so that of equals the first is kept; a metric that is not finite never is.
        """
        value = metrics[self.metric]
        better = math.isfinite(value) and (
            self.best is None or (value > self.best if self.higher_is_better else value < self.best)
        )
        if better:
            self.best, self.best_step, self.looks_without_gain = value, step, 0
            if self.keep == "best":
                self.best_weights = snapshot(module)
        else:
            self.looks_without_gain += 1
        if better or self.keep != "best":
            self.metrics = dict(metrics)
        if self.keep == "average":
            self.recent = [*self.recent, snapshot(module)][-self.average_last :]

    @property
    def exhausted(self) -> bool:
        """Whether patience is spent."""
        return 0 < self.patience <= self.looks_without_gain

    def apply(self, module: nn.Module) -> bool:
        """Put the kept weights into the module; true when they are new ones that nobody has looked at yet."""
        if self.keep == "best" and self.best_weights is not None:
            load_weights(module, self.best_weights)
        elif self.keep == "average" and len(self.recent) > 1:
            load_weights(module, average(self.recent))
            return True
        return False

    def state(self) -> dict[str, Any]:
        """What JSON can hold of it."""
        return {
            "best": self.best,
            "best_step": self.best_step,
            "looks_without_gain": self.looks_without_gain,
            "metrics": {k: v if math.isfinite(v) else None for k, v in self.metrics.items()},
            "recent": len(self.recent),
        }

    def tensors(self) -> dict[str, Snapshot]:
        """Its weights, by file name."""
        files = {f"recent-{index}": weights for index, weights in enumerate(self.recent)}
        return files if self.best_weights is None else {**files, "best": self.best_weights}

    def restore(self, state: dict[str, Any], tensors: dict[str, Snapshot]) -> None:
        """Put back what `state` and `tensors` gave."""
        self.best, self.best_step = state["best"], state["best_step"]
        self.looks_without_gain = state["looks_without_gain"]
        self.metrics = {k: math.nan if v is None else v for k, v in state["metrics"].items()}
        self.best_weights = tensors.get("best")
        self.recent = [tensors[f"recent-{index}"] for index in range(state["recent"])]
