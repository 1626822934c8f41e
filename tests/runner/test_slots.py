"""Who runs beside whom: trainings alone, unless each has GPUs or cores of its own; jobs elsewhere take nothing here."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from lexmill.execution import Execution
from lexmill.launching.settings import StageSettings
from lexmill.runner.slots import Claim, Slots


@pytest.fixture(autouse=True)
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr("lexmill.launching.leases.core_names", lambda: ["0", "1", "2", "3"])


def fits(slots: Slots, *stages: str) -> list[bool]:
    """Which of the stages, one after another, find a place beside those before them."""
    found = []
    with ExitStack() as held:
        for stage in stages:
            free = slots._free(slots.claim(stage))
            found.append(free)
            if free:
                held.enter_context(slots.take(stage))
    assert slots._held == []
    return found


CASES: list[tuple[dict[str, Any], list[str], list[bool]]] = [
    ({}, ["pretrain@a", "pretrain@b", "prepare@c"], [True, False, False]),
    ({}, ["prepare@a", "prepare@b", "prepare@c", "pretrain@d"], [True, True, False, False]),
    ({"accelerator": "cuda"}, ["pretrain@a", "pretrain@b", "pretrain@c", "prepare@d"], [True, True, False, True]),
    ({"accelerator": "cuda"}, ["pretrain@a", "floor_translator@b"], [True, False]),
    ({"accelerator": "cuda", "devices": 2, "strategy": "ddp"}, ["pretrain@a", "evaluate_translator@b"], [True, False]),
    ({"stages": {"pretrain": StageSettings(cpus=2)}}, ["pretrain@a", "pretrain@b", "pretrain@c"], [True, True, False]),
    ({"stages": {"pretrain": StageSettings(cpus=9)}}, ["pretrain@a", "pretrain@b"], [True, False]),
    (
        {"stages": {"pretrain": StageSettings(launcher="slurm")}},
        ["pretrain@a", "pretrain@b", "floor_translator@x", "prepare@c"],
        [True, True, True, False],
    ),
]


@pytest.mark.parametrize(("settings", "stages", "expected"), CASES)
def test_what_fits(settings: dict[str, Any], stages: list[str], expected: list[bool]) -> None:
    assert fits(Slots(2, Execution(**settings)), *stages) == expected


def test_without_gpus_a_training_runs_alone_and_says_itself_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert Slots(2, Execution(accelerator="cuda")).claim("pretrain@a") == Claim("alone")
