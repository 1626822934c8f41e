"""What each model of a comparison may spend: tokens, FLOPs or seconds of training, and a number of parameters."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.params.length import Length

Unit = Literal["parameters", "tokens", "flops", "seconds"]
DEFAULT = "1.4336e6 tokens"  # 700 steps of 2,048 tokens, the length of the tiny presets
_FORM = re.compile(r"\s*([0-9][0-9_.eE+]*)\s*([a-z]+)\s*")
_LENGTHS = ("warmup", "decay")  # of a schedule
_FEWEST = 2  # steps; a schedule needs a warm-up and a rest


@dataclass(frozen=True)
class Budget:
    """An amount that every model may spend."""

    amount: float
    unit: Unit

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read `1e6 tokens`, `3e12 flops`, `60 seconds` or `2e6 parameters`.

        Raises:
            UserError: it is none of these.
        """
        found = _FORM.fullmatch(text)
        unit = "" if found is None else found[2].removesuffix("s") + "s"
        try:
            amount = float("nan" if found is None else found[1].replace("_", ""))
        except ValueError:
            amount = math.nan
        if unit not in get_args(Unit) or not (0 < amount < math.inf):
            raise UserError(
                f"{value_text(text)} is no budget; write '1e6 tokens', '3e12 flops', '60 seconds' or '2e6 parameters'"
            )
        return cls(amount, cast(Unit, unit))

    def steps(self, batch: int, flops_per_token: float, tokens_per_second: float | None) -> int:
        """Return the optimizer steps of `batch` tokens that it pays for, rounded down.

        Args:
            batch: tokens of a step.
            flops_per_token: of training.
            tokens_per_second: as calibrated, for a budget of seconds.
        """
        if self.unit == "tokens":
            return int(self.amount // batch)
        if self.unit == "flops":
            return int(self.amount // (flops_per_token * batch))
        assert self.unit == "seconds"
        assert tokens_per_second is not None
        return int(self.amount * tokens_per_second // batch)

    def __str__(self) -> str:
        return f"{self.amount:.12g} {self.unit}"


@dataclass(frozen=True)
class Budgets:
    """The budgets of a comparison; without a length each preset trains for its own."""

    parameters: Budget | None
    length: Budget | None

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Budgets:
        """Read at most one budget of parameters and one of tokens, FLOPs or seconds; none: the default tokens."""
        found = [Budget.parse(text) for text in texts or [DEFAULT]]
        sizes = [one for one in found if one.unit == "parameters"]
        lengths = [one for one in found if one.unit != "parameters"]
        for same in (sizes, lengths):
            if len(same) > 1:
                raise UserError(f"budgets of {same[0]} and {same[1]} exclude each other; give one of them")
        return cls(sizes[0] if sizes else None, lengths[0] if lengths else None)

    def __str__(self) -> str:
        return " and ".join(str(one) for one in (self.parameters, self.length) if one is not None)


def with_steps(entry: Mapping[str, Any], steps: int, preset: str) -> dict[str, Any]:
    """Return an entry of `models` with this length; warm-up and decay keep their share of it, validation is at its end.

    So the rate is chosen, and the model measured, where the schedule has ended, and a short training is not spent on
    validations.

    Raises:
        UserError: there are too few steps, or the preset counts in epochs.
    """
    if steps < _FEWEST:
        raise UserError(f"the budget pays for {steps} steps of {preset}; give at least {_FEWEST}")
    found = copy.deepcopy(dict(entry))
    recipe, batch = found["recipe"], found["recipe"]["batch"]
    before = Length.parse(recipe["length"])
    schedule = recipe["schedule"]
    lengths = {key: Length.parse(schedule[key]) for key in _LENGTHS if key in schedule}
    if "epochs" in {before.unit, *(one.unit for one in lengths.values())}:
        raise UserError(f"{preset} counts in epochs, which no budget can stretch; give its lengths in steps or tokens")
    share = steps / before.steps(batch, 1)
    for key, length in lengths.items():
        if length.unit != "percent" and length.amount:
            schedule[key] = f"{max(1, round(length.steps(batch, 1) * share))} steps"
    recipe["length"] = recipe["validate_every"] = f"{steps} steps"
    return found
