"""A longer training goes on from a shorter one's last usable checkpoint, and makes the bits of a straight one."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from lexmill.base.errors import Terminated
from lexmill.models.common.state import snapshot
from lexmill.params.optimizers import (
    ConstantSchedule,
    CosineSchedule,
    InverseSquareRootSchedule,
    LinearSchedule,
    Schedule,
    WarmupStableDecaySchedule,
)
from lexmill.training import continuing
from lexmill.training.engine import FitResult, checkpoint_folder
from lexmill.training.settings import TrainingSettings
from tests.training.arithmetic_task import ArithmeticTask, DyingTask, execution, identity, settings, train

CONSTANT, STABLE = ConstantSchedule("constant"), WarmupStableDecaySchedule("warmup_stable_decay")
COSINE, LINEAR = CosineSchedule("cosine"), LinearSchedule("linear")
ROOT = InverseSquareRootSchedule("inverse_square_root")


def chosen(schedule: Schedule, steps: int, **changes: Any) -> TrainingSettings:
    """Its looks, every 4 steps and at the end, are elsewhere in a longer training."""
    decay = 4 if schedule is STABLE else 0
    return settings(steps, schedule=schedule, decay_steps=decay, **{"keep": "ema", "ema_decay": 0.7, **changes})


def done(root: Path, plan: TrainingSettings, **changes: Any) -> tuple[ArithmeticTask, FitResult]:
    """Train to the end, as a stage does."""
    task = ArithmeticTask(dropout=0.2)
    result = train(task, root, plan, **{"checkpoint_seconds": 1e9, **changes})
    checkpoint_folder(plan, execution(root), "tiny", identity(task)).finish()
    return task, result


def assert_same(one: tuple[ArithmeticTask, FitResult], other: tuple[ArithmeticTask, FitResult]) -> None:
    assert (one[1].rows, one[1].metrics, one[1].tokens) == (other[1].rows, other[1].metrics, other[1].tokens)
    weights = snapshot(other[0].module)
    assert all(torch.equal(value, weights[name]) for name, value in snapshot(one[0].module).items())


def kept(root: Path) -> list[int]:
    return sorted(int(path.parent.name.removeprefix("step-")) for path in root.glob("*/step-*/COMPLETE"))


@pytest.mark.parametrize(("schedule", "fork"), [(CONSTANT, 10), (ROOT, 10), (STABLE, 6)])
@pytest.mark.parametrize("keep", ["ema", "best", "average"])
def test_a_longer_training_goes_on(tmp_path: Path, schedule: Schedule, fork: int, keep: Any) -> None:
    shorter = done(tmp_path / "a", chosen(schedule, 10, keep=keep))
    assert kept(tmp_path / "a") == [fork]
    longer = done(tmp_path / "a", chosen(schedule, 17, keep=keep))
    assert longer[1].steps_now == 17 - fork
    straight = done(tmp_path / "b", chosen(schedule, 17, keep=keep))
    assert_same(longer, straight)
    assert len(shorter[1].rows) == 10
    assert kept(tmp_path / "a") == [{10: 17, 6: 13}[fork]]
    assert straight[1].steps_now == 17


def test_the_same_length_again_has_nothing_left_to_do(tmp_path: Path) -> None:
    """As after a kill between the end of the training and its outputs."""
    first, again = done(tmp_path, chosen(CONSTANT, 10)), done(tmp_path, chosen(CONSTANT, 10))
    assert again[1].steps_now == 0
    assert_same(again, first)


def test_a_shorter_training_takes_nothing_from_beyond_its_end(tmp_path: Path) -> None:
    done(tmp_path / "a", chosen(CONSTANT, 14))
    shorter = done(tmp_path / "a", chosen(CONSTANT, 6), checkpoint_seconds=0.0)
    assert shorter[1].steps_now == 6
    assert_same(shorter, done(tmp_path / "b", chosen(CONSTANT, 6)))
    assert kept(tmp_path / "a") == [14]


def stopped(root: Path, plan: TrainingSettings, at: int) -> None:
    with pytest.raises(Terminated):
        train(DyingTask(at, signal.SIGTERM, dropout=0.2), root, plan, checkpoint_seconds=1e9)


def test_what_has_begun_to_decay_is_passed_over(tmp_path: Path) -> None:
    stopped(tmp_path / "a", chosen(STABLE, 10), at=7)
    assert kept(tmp_path / "a") == [6, 8]
    same = done(tmp_path / "b", chosen(STABLE, 17))
    longer = done(tmp_path / "a", chosen(STABLE, 17))
    assert longer[1].steps_now == 11
    assert_same(longer, same)


@pytest.mark.parametrize("schedule", [COSINE, LINEAR])
def test_where_the_schedule_forbids_it_a_sentence_says_so(
    tmp_path: Path, schedule: Schedule, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(tmp_path / "a", chosen(schedule, 10), at=7)
    capsys.readouterr()
    longer = done(tmp_path / "a", chosen(schedule, 17))
    assert longer[1].steps_now == 17
    message = capsys.readouterr().err
    assert "the checkpoint of 10 steps in" in message
    assert f"cannot be resumed: under the {schedule.name} schedule every learning rate depends on the length" in message
    assert_same(longer, done(tmp_path / "b", chosen(schedule, 17)))
    assert "cannot be resumed" not in capsys.readouterr().err
    assert kept(tmp_path / "b") == []
    # The shorter one's own is still there for itself.
    assert done(tmp_path / "a", chosen(schedule, 10))[1].steps_now == 2
    assert not any((tmp_path / "a").iterdir())


def test_milestones_stay_for_good(tmp_path: Path) -> None:
    done(tmp_path, chosen(COSINE, 10), checkpoint_every_steps=3, checkpoint_seconds=0.0)
    assert kept(tmp_path) == [3, 6, 9]


@pytest.mark.parametrize(
    ("schedule", "steps", "end"), [(CONSTANT, 10, 10), (ROOT, 10, 10), (STABLE, 10, 6), (STABLE, 3, 0), (COSINE, 10, 0)]
)
def test_a_step_is_shared_as_long_as_all_rates_before_it_are(schedule: Schedule, steps: int, end: int) -> None:
    """Held against the rates themselves, of this length and of twice and ten times as much."""
    from lexmill.training.schedules import factor

    plan = chosen(schedule, steps)
    assert continuing.open_end(plan) == end

    def rates(length: int) -> list[float]:
        return [
            factor(schedule, step, steps=length, warmup=plan.warmup_steps, decay=plan.decay_steps)
            for step in range(1, steps + 1)
        ]

    for length in (2 * steps, 10 * steps):
        assert rates(steps)[:end] == rates(length)[:end]
        assert (rates(steps)[end:] != rates(length)[end:]) == (schedule is COSINE or end == 6)
