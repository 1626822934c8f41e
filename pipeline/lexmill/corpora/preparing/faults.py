"""Faults of input files, gathered over a whole corpus and told together."""

from __future__ import annotations

from lexmill.errors import UserError, UserErrors

MOST_SHOWN = 20
MOST_ALIKE = 3


class Faults:
    """Gathers faults; keeps a bounded part of them to show, and counts all.

    Of faults that say the same of one file, the first `MOST_ALIKE` are shown and the others counted, so that one
    wrong column does not hide the faults of other files.
    """

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str | UserError] = []
        self._alike: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, fault: UserError) -> None:
        self.count += 1
        key = (str(fault.file), fault.message)
        alike = self._alike.get(key, 0)
        if alike < MOST_ALIKE and len(self.shown) >= MOST_SHOWN:
            return
        self._alike[key] = alike + 1
        if alike < MOST_ALIKE:
            self.shown.append(fault)

    def raise_all(self) -> None:
        """Raise `UserErrors` with what was gathered, if anything was."""
        if not self.count:
            return
        faults = list(self.shown)
        left = self.count - len(faults)
        for (file, message), alike in self._alike.items():
            if alike > MOST_ALIKE:
                faults.append(f"{file}: {message}: the same in {alike - MOST_ALIKE:,} more places")
                left -= alike - MOST_ALIKE
        raise UserErrors([*faults, f"and {left:,} more"] if left else faults)
