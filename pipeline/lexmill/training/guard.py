"""Which optimizer steps are skipped: the loss or the gradient is not finite, or the loss is an outlier.

A step is judged by numbers that every rank has, before the weights change, so that a bad batch costs one step, not the
model. It still counts as a step: data and learning rate are functions of its number. The loss is compared with the
mean of recent ones; an outlier enters that record clipped to the bound, so that a lasting new level becomes normal and
a single outlier hides no later one. Cost: some 10 microseconds a step.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from lexmill.base.errors import UserError

_LEAST = 20  # losses needed before one can be an outlier
_RELATIVE, _ABSOLUTE = 0.01, 0.02  # a deviation is at least 1 % of the mean, and 0.02 nats: rounding is no spike


class Guard:
    """Judges each step; its whole state can be saved and restored.

    Args:
        window: recent steps that a loss is compared with, and among which skipped ones are counted.
        deviations: standard deviations above the recent mean that make a loss an outlier.
        most: tolerated skipped steps in a window.
    """

    def __init__(self, window: int = 100, deviations: float = 6.0, most: int = 10) -> None:
        if window < _LEAST or most < 1:
            raise ValueError(f"window {window} must be at least {_LEAST}, most {most} at least 1")
        self.window, self.deviations, self.most = window, deviations, most
        self.skipped = 0
        """Steps skipped since the training began."""
        self._losses: deque[float] = deque(maxlen=window)
        self._recent: list[int] = []  # the skipped steps of the last window

    def judge(self, step: int, loss: float, grad_norm: float) -> str | None:
        """Return why step `step` must be skipped, or None if it may be taken.

        Args:
            step: the next optimizer step (from 1); each is judged once, in order.
            loss: nats per target of the global batch.
            grad_norm: norm of the gradient per target, before clipping.

        Raises:
            UserError: this is one step too many to skip.
        """
        reason = self._reason(loss, grad_norm)
        if reason is None:
            return None
        self.skipped += 1
        self._recent = [one for one in self._recent if one > step - self.window] + [step]
        if len(self._recent) > self.most:
            raise UserError(
                f"step {step} would be the {len(self._recent)}th skipped of {min(step, self.window)} steps ({reason}):"
                " lower optimizer.lr, lengthen schedule.warmup, set clip_norm or check the data; the weights are"
                " still those of the last good step"
            )
        return reason

    def _reason(self, loss: float, grad_norm: float) -> str | None:
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        bound = self._bound()
        self._losses.append(min(loss, bound))
        if not math.isfinite(grad_norm):
            return f"the gradient's norm is {grad_norm}"
        if loss > bound:
            return (
                f"the loss is {loss:.4g}, more than {self.deviations:g} deviations above the recent mean: {bound:.4g}"
            )
        return None

    def _bound(self) -> float:
        """Return the largest loss that is no outlier."""
        count = len(self._losses)
        if count < _LEAST:
            return math.inf
        mean = math.fsum(self._losses) / count
        variance = math.fsum([(loss - mean) ** 2 for loss in self._losses]) / count
        return mean + self.deviations * max(math.sqrt(variance), _RELATIVE * abs(mean), _ABSOLUTE)

    def state(self) -> dict[str, Any]:
        """Return the whole state as JSON data."""
        return {"losses": list(self._losses), "recent": self._recent, "skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._losses = deque(state["losses"], maxlen=self.window)
        self._recent, self.skipped = list(state["recent"]), state["skipped"]
