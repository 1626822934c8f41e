"""Faults of input files, gathered over a whole corpus and told together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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
        self.shown: list[UserError] = []
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

    def as_plain(self, folder: Path) -> dict[str, Any]:
        """What `merge` reads, as JSON can hold it; files by their path in `folder`."""
        shown = [[fault.message, os.path.relpath(str(fault.file), folder), fault.line] for fault in self.shown]
        alike = [[os.path.relpath(file, folder), message, count] for (file, message), count in self._alike.items()]
        return {"count": self.count, "shown": shown, "alike": alike}

    def merge(self, later: dict[str, Any], folder: Path) -> None:
        """Take in the faults of later files, as if they had been added here one by one.

        Args:
            later: from `as_plain`, of another process perhaps.
            folder: what the files' folder is called here.
        """
        before = self.count
        for message, file, line in later["shown"]:
            self.add(UserError(message, folder / file, line))
        for file, message, alike in later["alike"]:
            key = (str(folder / file), message)
            if self._alike.get(key, 0) >= MOST_ALIKE:
                self._alike[key] += max(0, alike - MOST_ALIKE)
        self.count = before + later["count"]

    def raise_all(self) -> None:
        """Raise `UserErrors` with what was gathered, if anything was."""
        if not self.count:
            return
        faults: list[str | UserError] = list(self.shown)
        left = self.count - len(faults)
        for (file, message), alike in self._alike.items():
            if alike > MOST_ALIKE:
                faults.append(f"{file}: {message}: the same in {alike - MOST_ALIKE:,} more places")
                left -= alike - MOST_ALIKE
        raise UserErrors([*faults, f"and {left:,} more"] if left else faults)
