"""The optimizer steps still to do; what Lightning takes for a data loader."""

from __future__ import annotations

from collections.abc import Iterator

NOTHING_LEFT = -1
"""In place of a step, where a resumed training has made all of them: Lightning leaves out the end of an empty epoch."""


class Steps:
    """The steps from `start` (done) to `stop`."""

    def __init__(self, start: int, stop: int) -> None:
        self._steps = range(start, stop) if start < stop else range(NOTHING_LEFT, NOTHING_LEFT + 1)

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[int]:
        return iter(self._steps)
