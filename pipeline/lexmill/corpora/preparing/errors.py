"""Errors in input files, collected over a whole corpus and reported together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError, UserErrors

MOST_SHOWN = 20
MOST_ALIKE = 3


class Errors:
    """Collects errors; counts all and keeps a bounded number to show.

    Of equal messages about one file the first `MOST_ALIKE` are shown and the others counted, so that one wrong column
    does not hide the errors of other files.
    """

    def __init__(self) -> None:
        self.shown: list[UserError] = []
        self._counts: dict[str, int] = {}
        self._alike: dict[tuple[str, str], int] = {}
        self._ended: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._counts)

    @property
    def count(self) -> int:
        """The number of errors added."""
        return sum(self._counts.values())

    def add(self, error: UserError) -> None:
        """Add an error that did not end the reading of its file."""
        self._counts[str(error.file)] = self._counts.get(str(error.file), 0) + 1
        self._show(error)

    def add_last(self, error: UserError) -> None:
        """Add an error that ended the reading of its file; `merge` ignores errors in later parts of it."""
        self.add(error)
        self._ended.add(str(error.file))

    def _show(self, error: UserError) -> None:
        key = (str(error.file), error.message)
        alike = self._alike.get(key, 0)
        if alike < MOST_ALIKE and len(self.shown) >= MOST_SHOWN:
            return
        self._alike[key] = alike + 1
        if alike < MOST_ALIKE:
            self.shown.append(error)

    def as_plain(self, folder: Path) -> dict[str, Any]:
        """Return the input of `merge` as plain JSON values; files by their path in `folder`."""
        names = {file: os.path.relpath(file, folder) for file in self._counts}
        return {
            "counts": {names[file]: count for file, count in self._counts.items()},
            "shown": [[error.message, names[str(error.file)], error.line] for error in self.shown],
            "alike": [[names[file], message, count] for (file, message), count in self._alike.items()],
            "ended": sorted(names[file] for file in self._ended),
        }

    def merge(self, later: dict[str, Any], folder: Path) -> None:
        """Add the errors of later files, or of later parts of them, as if one by one.

        Args:
            later: from `as_plain`, perhaps of another process.
            folder: the files' folder in this process.
        """
        counts = {file: n for file, n in later["counts"].items() if str(folder / file) not in self._ended}
        for file, count in counts.items():
            self._counts[str(folder / file)] = self._counts.get(str(folder / file), 0) + count
        for message, file, line in later["shown"]:
            if file in counts:
                self._show(UserError(message, folder / file, line))
        for file, message, alike in later["alike"]:
            key = (str(folder / file), message)
            if file in counts and self._alike.get(key, 0) >= MOST_ALIKE:
                self._alike[key] += max(0, alike - MOST_ALIKE)
        self._ended |= {str(folder / file) for file in later["ended"]}

    def raise_all(self) -> None:
        """Raise `UserErrors` if there are any errors."""
        if not self.count:
            return
        errors: list[str | UserError] = list(self.shown)
        left = self.count - len(errors)
        for (file, message), alike in self._alike.items():
            if alike > MOST_ALIKE:
                errors.append(f"{file}: {message}: the same in {alike - MOST_ALIKE:,} more places")
                left -= alike - MOST_ALIKE
        raise UserErrors([*errors, f"and {left:,} more"] if left else errors)
