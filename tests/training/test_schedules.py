"""Schedules by hand-worked numbers, in optimizer steps; the steps that lengths come to."""

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from lexmill.params.length import Length
from lexmill.params.optimizers import (
    AdamW,
    ConstantSchedule,
    CosineSchedule,
    InverseSquareRootSchedule,
    LinearSchedule,
    Schedule,
    WarmupStableDecaySchedule,
)
from lexmill.params.recipe import Recipe
from lexmill.training.production import settings_of
from lexmill.training.schedules import factor


def factors(schedule: Schedule, at: list[int], **lengths: int) -> list[float]:
    return [factor(schedule, step, **{"steps": 100, "warmup": 0, **lengths}) for step in at]


def test_constant_rises_and_stays() -> None:
    assert factors(ConstantSchedule("constant"), [1, 2, 4, 5, 100, 999], warmup=4) == [0.25, 0.5, 1, 1, 1, 1]
    assert factors(ConstantSchedule("constant"), [1, 50]) == [1, 1]


def test_cosine_warms_up_and_comes_down() -> None:
    schedule = CosineSchedule("cosine", final_fraction=0.1)
    found = factors(schedule, [1, 5, 10, 35, 60, 110, 500], steps=110, warmup=10)
    assert found == pytest.approx([0.1, 0.5, 1.0, 0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2, 0.55, 0.1, 0.1])


def test_linear_comes_down_to_its_final_share() -> None:
    schedule = LinearSchedule("linear", final_fraction=0.2)
    assert factors(schedule, [5, 10, 11], steps=10) == pytest.approx([0.6, 0.2, 0.2])
    assert factors(schedule, [1, 2, 6, 10], steps=10, warmup=2) == pytest.approx([0.5, 1.0, 0.6, 0.2])


def test_inverse_square_root_is_that_of_the_transformer_paper() -> None:
    """Vaswani et al. 2017, equation 3, over its peak."""
    schedule = InverseSquareRootSchedule("inverse_square_root")
    for step in (1, 17, 40, 41, 160, 4000):
        wanted = min(step**-0.5, step * 40**-1.5) / 40**-0.5
        assert factor(schedule, step, steps=50, warmup=40) == pytest.approx(wanted)
    assert factors(schedule, [160], warmup=40) == [0.5]


def test_warmup_stable_decay_holds_the_peak_and_falls_at_the_end() -> None:
    schedule = WarmupStableDecaySchedule("warmup_stable_decay", final_fraction=0.1)
    found = factors(schedule, [5, 10, 11, 80, 85, 90, 100, 101], warmup=10, decay=20)
    assert found == pytest.approx([0.5, 1, 1, 1, 0.775, 0.55, 0.1, 0.1])
    # A decay that does not fit starts where the warm-up ends.
    assert factors(schedule, [10, 55, 100], warmup=10, decay=500) == pytest.approx([1, 0.55, 0.1])
    assert factors(schedule, [50, 100], decay=0) == [1, 1]


def test_a_longer_run_shares_all_but_the_decay() -> None:
    """So a run can be continued from before its decay."""
    schedule = WarmupStableDecaySchedule("warmup_stable_decay")
    short = factors(schedule, list(range(1, 81)), warmup=10, decay=20)
    assert short == factors(schedule, list(range(1, 81)), steps=1000, warmup=10, decay=20)


def test_steps_count_from_one() -> None:
    with pytest.raises(ValueError, match="count from 1, got 0"):
        factor(ConstantSchedule("constant"), 0, steps=10, warmup=0)


@given(
    steps=st.integers(1, 300),
    warmup=st.integers(0, 400),
    decay=st.integers(0, 400),
    final=st.floats(0, 1),
    step=st.integers(1, 1000),
)
def test_no_schedule_leaves_its_range_or_jumps(steps: int, warmup: int, decay: int, final: float, step: int) -> None:
    for schedule in (
        ConstantSchedule("constant"),
        CosineSchedule("cosine", final_fraction=final),
        LinearSchedule("linear", final_fraction=final),
        InverseSquareRootSchedule("inverse_square_root"),
        WarmupStableDecaySchedule("warmup_stable_decay", final_fraction=final),
    ):
        one, two = (factor(schedule, s, steps=steps, warmup=warmup, decay=decay) for s in (step, step + 1))
        assert 0 <= one <= 1
        assert two <= one + 1e-12 or step < warmup, "after the warm-up it never rises"
        assert (two > one) == (step + 1 <= warmup) or step >= warmup, "before its end it always rises"


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("700 steps", 700, "steps"),
        (700, 700, "steps"),
        ("1 step", 1, "steps"),
        (" 1.5e6 tokens ", 1_500_000, "tokens"),
        ("2_000_000 tokens", 2_000_000, "tokens"),
        ("3 epochs", 3, "epochs"),
        ("0.5epochs", 0.5, "epochs"),
        ("1 epoch", 1, "epochs"),
        ("0 steps", 0, "steps"),
        ("10 %", 10, "percent"),
        ("2.5%", 2.5, "percent"),
    ],
)
def test_lengths_are_read(text: Any, amount: float, unit: str) -> None:
    found = Length.parse(text)
    assert (found.amount, found.unit) == (amount, unit)
    assert Length.parse(str(found)) == found


@pytest.mark.parametrize(
    "text", ["", "steps", "-3 steps", "3 weeks", "1.5 steps", "2.5 tokens", "1e400 tokens", "1e 3"]
)
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no length; write '700 steps'|is whole"):
        Length.parse(text)
    for value in (True, None, 2.5, [3]):
        with pytest.raises(ValueError, match="is no length"):
            Length.parse(value)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("700 steps", 700),
        ("1.5e6 tokens", 3000),
        ("1_500_001 tokens", 3001),
        ("1 tokens", 1),
        ("3 epochs", 120),
        ("0.26 epochs", 11),
        ("0.1 epochs", 4),
        ("0 tokens", 0),
    ],
)
def test_the_steps_of_a_length(text: str, steps: int) -> None:
    """500 tokens a step, 40 steps a pass over train."""
    assert Length.parse(text).steps(500, 40) == steps


def recipe(**changes: Any) -> Recipe:
    base = Recipe(
        method="gradient",
        optimizer=AdamW("adamw", lr=0.1),
        schedule=CosineSchedule("cosine"),
        length=Length(3, "epochs"),
        batch=500,
    )
    return dataclasses.replace(base, **changes)


def test_lengths_are_counted_in_optimizer_steps() -> None:
    """Each length in a unit of its own."""
    schedule = WarmupStableDecaySchedule(
        "warmup_stable_decay", warmup=Length(5000, "tokens"), decay=Length(0.5, "epochs")
    )
    found = settings_of(recipe(schedule=schedule), steps_per_epoch=40, seed=1)
    assert (found.steps, found.warmup_steps, found.decay_steps) == (120, 10, 20)
    found = settings_of(recipe(length=Length(777, "steps")), steps_per_epoch=40, seed=1)
    assert (found.steps, found.warmup_steps, found.decay_steps) == (777, 0, 0)
    schedule = InverseSquareRootSchedule("inverse_square_root", warmup=Length(0.25, "epochs"))
    found = settings_of(recipe(schedule=schedule, length=Length(1e6, "tokens"), batch=4000), 40, seed=1)
    assert (found.steps, found.warmup_steps, found.decay_steps) == (250, 10, 0)


def test_percent_are_of_the_training() -> None:
    schedule = WarmupStableDecaySchedule(
        "warmup_stable_decay", warmup=Length(10, "percent"), decay=Length(20, "percent")
    )
    found = settings_of(recipe(schedule=schedule, length=Length(77, "steps")), steps_per_epoch=40, seed=1)
    assert (found.warmup_steps, found.decay_steps) == (7, 15), "rounded down"


@pytest.mark.parametrize(
    ("text", "steps"),
    [("100 steps", 100), ("0.25 epochs", 11), ("0.5 epochs", 21), ("0.001 epochs", 1), ("2500 tokens", 5), ("1 %", 1)],
)
def test_the_steps_between_validations_are_rounded_up_and_never_none(text: str, steps: int) -> None:
    """41 steps a pass over train, 500 targets a step, 123 steps; 1 % of them, rounded down, is 1."""
    assert settings_of(recipe(validate_every=Length.parse(text)), steps_per_epoch=41, seed=1).validate_every == steps


@pytest.mark.parametrize(
    ("schedule", "error"),
    [
        (CosineSchedule("cosine", warmup=Length(1, "epochs")), r"schedule.warmup: its 40 steps .* \(20\)"),
        (
            WarmupStableDecaySchedule("warmup_stable_decay", warmup=Length(2000, "tokens"), decay=Length(17, "steps")),
            r"schedule.decay: .* 4 \+ 17 steps, but length has 20",
        ),
    ],
)
def test_a_schedule_that_is_longer_than_the_training_is_refused(schedule: Any, error: str) -> None:
    """In units that only the data compares: 20 steps are half an epoch."""
    with pytest.raises(UserError, match=error):
        settings_of(recipe(schedule=schedule, length=Length(20, "steps")), steps_per_epoch=40, seed=1)
    settings_of(recipe(schedule=schedule, length=Length(41, "steps")), steps_per_epoch=40, seed=1)


def test_what_is_kept_is_passed_on() -> None:
    found = settings_of(recipe(keep="ema", ema_decay=0.5, averaged=7, patience=3), 40, seed=1)
    assert (found.keep, found.ema_decay, found.averaged, found.patience) == ("ema", 0.5, 7, 3)
