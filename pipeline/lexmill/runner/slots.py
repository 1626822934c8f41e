"""Who may run beside whom: trainings and evaluations alone on all cores, light stages a few side by side.

Two trainings on one CPU are not half as fast each but many times slower (their threads wait for each other).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ALONE = ("pretrain", "finetune", "train_translator")
_ALONE_PREFIXES = ("evaluate_", "floor_")


def runs_alone(stage: str) -> bool:
    """Whether a stage takes the whole machine: trainings, evaluations and floors do."""
    group = stage.rpartition(":")[2].partition("@")[0]
    return group in _ALONE or group.startswith(_ALONE_PREFIXES)


class Slots:
    """Admits one stage that runs alone, or up to `jobs` light ones."""

    def __init__(self, jobs: int) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        self._jobs = jobs
        self._condition = threading.Condition()
        self._light = 0
        self._alone = False
        self._closed = False

    @contextmanager
    def take(self, stage: str) -> Iterator[bool]:
        """Wait for a place; yields False, at once, when the slots are closed (the stage must not start)."""
        alone = runs_alone(stage)
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._free(alone))
            admitted = not self._closed
            if admitted:
                self._change(alone, +1)
        try:
            yield admitted
        finally:
            if admitted:
                with self._condition:
                    self._change(alone, -1)
                    self._condition.notify_all()

    def close(self) -> None:
        """Nobody is admitted any more."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def wait_empty(self) -> None:
        """Wait until nobody holds a place."""
        with self._condition:
            self._condition.wait_for(lambda: not self._alone and self._light == 0)

    def _free(self, alone: bool) -> bool:
        if alone:
            return not self._alone and self._light == 0
        return not self._alone and self._light < self._jobs

    def _change(self, alone: bool, by: int) -> None:
        if alone:
            self._alone = by > 0
        else:
            self._light += by
