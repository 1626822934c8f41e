"""Who runs beside whom: trainings alone, unless each has GPUs or cores of its own; jobs elsewhere take nothing here."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from lexmill.compute.execution import Execution
from lexmill.compute.settings import StageSettings
from lexmill.runner.display import outcome_text
from lexmill.runner.session import open_session, run_all
from lexmill.runner.slots import Claim, Slots
from lexmill.runner.supervised import Outcome


@pytest.fixture(autouse=True)
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr("lexmill.compute.leases.core_names", lambda: ["0", "1", "2", "3"])


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
    ({}, ["train@a", "train@b", "prepare@c"], [True, False, False]),
    ({}, ["prepare@a", "prepare@b", "prepare@c", "train@d"], [True, True, False, False]),
    ({"accelerator": "cuda"}, ["train@a", "train@b", "train@c", "prepare@d"], [True, True, False, True]),
    ({"accelerator": "cuda"}, ["train@a", "baseline@b"], [True, False]),
    ({"accelerator": "cuda", "devices": 2, "strategy": "ddp"}, ["train@a", "evaluate@b"], [True, False]),
    ({"stages": {"train": StageSettings(cpus=2)}}, ["train@a", "train@b", "train@c"], [True, True, False]),
    ({"stages": {"train": StageSettings(cpus=9)}}, ["train@a", "train@b"], [True, False]),
    (
        {"stages": {"train": StageSettings(launcher="slurm")}},
        ["train@a", "train@b", "baseline@x", "prepare@c"],
        [True, True, True, False],
    ),
]


@pytest.mark.parametrize(("settings", "stages", "expected"), CASES)
def test_what_fits(settings: dict[str, Any], stages: list[str], expected: list[bool]) -> None:
    assert fits(Slots(2, Execution(**settings)), *stages) == expected


def test_without_gpus_a_training_runs_alone_and_says_itself_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert Slots(2, Execution(accelerator="cuda")).claim("train@a") == Claim("alone")


WITH_THE_OTHER = """
import time
Path("{own}.here").touch()
deadline = time.monotonic() + 120
while not Path("{other}.here").exists():
    assert time.monotonic() < deadline, "it runs alone"
    time.sleep(0.05)
write("x")
"""


def test_trainings_with_a_gpu_each_run_at_once(project: Any) -> None:
    project.stage("train", WITH_THE_OTHER.format(own="train", other="train"))
    project.stage("train", WITH_THE_OTHER.format(own="train", other="train"))
    settings = Execution(stages={"default": StageSettings(gpus=1)})
    with open_session(root=project.root, jobs=1, settings=settings) as session:
        run_all(session)
    assert {outcome.state for outcome in session.outcomes.values()} == {"ran"}


def test_a_signal_is_reported_as_such() -> None:
    assert outcome_text(Outcome("train@a", "failed", 143, 2.0, "terminated")) == "train@a: terminated after 2.0 s"
    assert outcome_text(Outcome("train@a", "failed", 2, 2.0, "why")).startswith("train@a: failed with exit code 2")
