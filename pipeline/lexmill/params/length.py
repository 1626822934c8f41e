"""A length of training: `700 steps`, `1.5e6 tokens`, `3 epochs`, `10 %`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, cast

from lexmill.base.shown import value_text

Unit = Literal["steps", "tokens", "epochs", "percent"]
_MOST: dict[Unit, float] = {"steps": 1e12, "tokens": 1e15, "epochs": 1e6, "percent": 100}
_FORM = re.compile(r"\s*([0-9][0-9_.eE+]*)\s*(steps?|tokens?|epochs?|%)?\s*")


@dataclass(frozen=True)
class Length:
    """An amount of training; never counted in micro-batches.

    Attributes:
        amount: how many units; whole for steps and tokens.
        unit: optimizer steps, targets learned from over all devices, passes over train, or percent of the training.
    """

    amount: float
    unit: Unit

    @classmethod
    def parse(cls, value: object) -> Length:
        """Read `700 steps`, `700` (steps), `1.5e6 tokens`, `3 epochs` or `10 %`; else raise `ValueError`."""
        text = value if isinstance(value, str) else value_text(value)
        found = _FORM.fullmatch(text) if isinstance(value, str | int) and not isinstance(value, bool) else None
        problem = f"{value_text(value)} is no length; write '700 steps', '1.5e6 tokens', '3 epochs' or '10 %'"
        if found is None:
            raise ValueError(problem)
        try:
            amount = float(found[1].replace("_", ""))
        except ValueError:
            raise ValueError(problem) from None
        unit = "percent" if found[2] == "%" else (found[2] or "steps").removesuffix("s") + "s"
        if not math.isfinite(amount):
            raise ValueError(problem)
        if unit in ("steps", "tokens") and amount != int(amount):
            raise ValueError(f"{value!r}: a number of {unit} is whole")
        if amount > _MOST[cast(Unit, unit)]:
            raise ValueError(f"{value!r} is too long; at most {_MOST[cast(Unit, unit)]:,.0f} {unit}")
        return cls(amount, cast(Unit, unit))

    def steps(self, batch: int, steps_per_epoch: int, total: int = 0) -> int:
        """Return optimizer steps of `batch` targets, rounded up; percent of `total` steps are rounded down."""
        if self.unit == "percent":
            return int(self.amount / 100 * total)
        if self.unit == "tokens":
            return math.ceil(self.amount / batch)
        if self.unit == "epochs":
            return math.ceil(self.amount * steps_per_epoch - 1e-9)
        return int(self.amount)

    def __str__(self) -> str:
        if self.unit == "percent":
            return f"{self.amount:g} %"
        return f"{self.amount:g} {self.unit}" if self.amount < 1e6 else f"{self.amount:.12g} {self.unit}"
