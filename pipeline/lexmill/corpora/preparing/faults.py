"""Faults of input files, gathered over a whole corpus and told together."""

from __future__ import annotations

from lexmill.errors import UserError, UserErrors

MOST_SHOWN = 20


class Faults:
    """Gathers faults; `shown` keeps the first `MOST_SHOWN`, `count` counts all, so memory stays bounded."""

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str | UserError] = []

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, fault: UserError) -> None:
        self.count += 1
        if len(self.shown) < MOST_SHOWN:
            self.shown.append(fault)

    def raise_all(self) -> None:
        """Raise `UserErrors` with what was gathered, if anything was."""
        if self.count > MOST_SHOWN:
            raise UserErrors([*self.shown, f"and {self.count - MOST_SHOWN:,} more"])
        if self.count:
            raise UserErrors(self.shown)
