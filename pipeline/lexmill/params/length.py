"""A length of training as people say it: `700 steps`, `1.5e6 tokens`, `3 epochs`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, cast

Unit = Literal["steps", "tokens", "epochs"]
_FORM = re.compile(r"\s*([0-9][0-9_.eE+]*)\s*(steps?|tokens?|epochs?)?\s*")


@dataclass(frozen=True)
class Length:
    """An amount of training; never counted in micro-batches.

    Attributes:
        amount: how many units; whole for steps and tokens.
        unit: optimizer steps, targets learned from over all devices, or passes over train.
    """

    amount: float
    unit: Unit

    @classmethod
    def parse(cls, value: object) -> Length:
        """Read `700 steps`, `700` (steps), `1.5e6 tokens`, `3 epochs`.

        Raises:
            ValueError: anything else.
        """
        found = _FORM.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
        problem = f"{value!r} is no length; write '700 steps', '1.5e6 tokens' or '3 epochs'"
        if found is None:
            raise ValueError(problem)
        try:
            amount = float(found[1].replace("_", ""))
        except ValueError:
            raise ValueError(problem) from None
        unit = (found[2] or "steps").removesuffix("s") + "s"
        if not math.isfinite(amount) or (unit != "epochs" and amount != int(amount)):
            raise ValueError(f"{value!r}: a number of {unit} is whole")
        return cls(amount, cast(Unit, unit))

    def steps(self, batch_tokens: int, steps_per_epoch: int) -> int:
        """The optimizer steps of it, rounded up."""
        if self.unit == "tokens":
            return math.ceil(self.amount / batch_tokens)
        if self.unit == "epochs":
            return math.ceil(self.amount * steps_per_epoch - 1e-9)
        return int(self.amount)

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}" if self.amount < 1e6 else f"{self.amount:.12g} {self.unit}"
