"""Who may run beside whom: trainings and evaluations alone on all cores, light stages a few side by side.

Two trainings on one CPU are not half as fast each but many times slower (their threads wait for each other). Stages
that have GPUs or cores of their own run beside each other as far as the machine has them: many small models fill a
node. A stage that runs elsewhere takes nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from lexmill.compute import leases
from lexmill.compute.execution import Execution
from lexmill.compute.place import place_of
from lexmill.compute.settings import TRAINING, group_of

_ALONE = (TRAINING, "evaluate", "baseline")
_ELSEWHERE = 32  # processes that wait for a job each


def runs_alone(stage: str) -> bool:
    """Whether a stage takes the whole machine: trainings, evaluations and baselines do."""
    return group_of(stage) in _ALONE


@dataclass(frozen=True)
class Claim:
    """What a stage takes while it runs."""

    kind: Literal["alone", "light", "own", "elsewhere"]
    gpus: int = 0
    cores: int = 0


class Slots:
    """Admits one stage that runs alone; or those with devices of their own that fit, and up to `jobs` light ones."""

    def __init__(self, jobs: int, settings: Execution | None = None) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        self._jobs = jobs
        self._settings = settings or Execution()
        self._condition = threading.Condition()
        self._held: list[Claim] = []
        self._closed = False

    @cached_property
    def _gpus(self) -> int:
        return len(leases.gpu_names())

    @cached_property
    def _cores(self) -> int:
        return len(leases.core_names())

    def claim(self, stage: str) -> Claim:
        """What the stage will take. More than the machine has is cut: the stage itself then says what is missing."""
        place = place_of(stage, self._settings)
        if place.elsewhere:
            return Claim("elsewhere")
        gpus = min(place.gpus, self._gpus) if place.gpus else 0
        cores = min(place.cpus, self._cores) if place.cpus else 0
        if gpus or cores:
            return Claim("own", gpus, cores)
        return Claim("alone" if runs_alone(stage) else "light")

    @contextmanager
    def take(self, stage: str, waits: Callable[[], None] | None = None) -> Iterator[bool]:
        """Wait for a place; yields False, at once, when the slots are closed (the stage must not start).

        Args:
            stage: whose place.
            waits: is called, once and quickly done, where the place is not free at once.
        """
        claim = self.claim(stage)
        with self._condition:
            if waits is not None and not (self._closed or self._free(claim)):
                waits()
            self._condition.wait_for(lambda: self._closed or self._free(claim))
            admitted = not self._closed
            if admitted:
                self._held.append(claim)
        try:
            yield admitted
        finally:
            if admitted:
                with self._condition:
                    self._held.remove(claim)
                    self._condition.notify_all()

    def close(self) -> None:
        """Nobody is admitted any more."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def wait_empty(self) -> None:
        """Wait until nobody holds a place."""
        with self._condition:
            self._condition.wait_for(lambda: not self._held)

    def _free(self, claim: Claim) -> bool:
        kinds = [one.kind for one in self._held]
        if claim.kind == "elsewhere":
            return kinds.count("elsewhere") < _ELSEWHERE
        if "alone" in kinds:
            return False
        if claim.kind == "alone":
            return all(kind == "elsewhere" for kind in kinds)
        if claim.kind == "light":
            return kinds.count("light") < self._jobs
        gpus = claim.gpus + sum(one.gpus for one in self._held)
        cores = claim.cores + sum(one.cores for one in self._held)
        return (not claim.gpus or gpus <= self._gpus) and (not claim.cores or cores <= self._cores)
