"""Which optimizer steps are skipped: the loss or the gradient is not finite, or the loss is an outlier.

A step is judged by numbers that every rank has, before the weights are touched, so that a bad batch costs one step and
not the model. It still counts as a step: the data and the learning rate are functions of its number. The loss is
compared with the mean of the recent ones; a loss that stood out enters that record cut to the bound, so that a lasting
new level becomes normal and a single outlier hides no later one. Cost: some 10 microseconds a step.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from lexmill.base.errors import UserError

_LEAST = 20  # losses that must be known before one can stand out
_RELATIVE, _ABSOLUTE = 0.01, 0.02  # a deviation is at least 1 % of the mean, and 0.02 nats: rounding is no spike


class Guard:
    """Judges each step; all of its state can be saved and put back.

    Args:
        window: recent steps that a loss is compared with, and among which skipped ones are counted.
        deviations: standard deviations above the recent mean from which on a loss stands out.
        most: skipped steps in a window that are borne.
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
        """Why step `step` must be skipped, or None when it may be taken.

        Args:
            step: the optimizer step that would be made (from 1); each is judged once, in order.
            loss: nats a target of the global batch.
            grad_norm: norm of the gradient a target, before clipping.

        Raises:
            UserError: this is one step too many to skip.
        """
        reason = self._fault(loss, grad_norm)
        if reason is None:
            return None
        self.skipped += 1
        self._recent = [one for one in self._recent if one > step - self.window] + [step]
        if len(self._recent) > self.most:
            raise UserError(
                f"step {step} would be the {len(self._recent)}th skipped of {min(step, self.window)} steps ({reason}):"
                " lower optimizer.lr, lengthen schedule.warmup, set clip_norm or look at the data; the weights are"
                " still those of the last good step"
            )
        return reason

    def _fault(self, loss: float, grad_norm: float) -> str | None:
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
        """The largest loss that does not stand out."""
        count = len(self._losses)
        if count < _LEAST:
            return math.inf
        mean = math.fsum(self._losses) / count
        variance = math.fsum([(loss - mean) ** 2 for loss in self._losses]) / count
        return mean + self.deviations * max(math.sqrt(variance), _RELATIVE * abs(mean), _ABSOLUTE)

    def state(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {"losses": list(self._losses), "recent": self._recent, "skipped": self.skipped}

    def restore(self, state: dict[str, Any]) -> None:
        """Put back what `state` gave."""
        self._losses = deque(state["losses"], maxlen=self.window)
        self._recent, self.skipped = list(state["recent"]), state["skipped"]
