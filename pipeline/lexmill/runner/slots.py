"""Admission of stages: trainings and evaluations alone on all cores, a few light stages side by side.

Two trainings that share a CPU are many times slower, since their threads wait for each other. Stages with their own
GPUs or cores run concurrently as far as the machine has them. A stage that runs elsewhere takes nothing here.
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
from lexmill.compute.settings import EVALUATION, TRAINING, TRANSLATION, group_of

_ALONE = (TRAINING, EVALUATION, TRANSLATION, "baseline")
_ELSEWHERE = 32  # processes, each waiting for a job


def runs_alone(stage: str) -> bool:
    """Return whether a stage takes the whole machine, as trainings, evaluations, translations and baselines do."""
    return group_of(stage) in _ALONE


@dataclass(frozen=True)
class Claim:
    """What a stage takes while it runs."""

    kind: Literal["alone", "light", "own", "elsewhere"]
    gpus: int = 0
    cores: int = 0


class Slots:
    """Admit one stage that runs alone; or those with their own devices that fit, and up to `jobs` light ones."""

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
        """Return what the stage will take, at most what the machine has: the stage itself reports what is missing."""
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
        """Wait for a place; yield False at once when the slots are closed (the stage must not start).

        `waits` is called once, if the place is not free at once; it must be quick.
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
        """Admit no more stages."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def wait_empty(self) -> None:
        """Wait until no stage holds a place."""
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
