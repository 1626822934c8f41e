"""The guard on hand-made series of losses."""

import json
import math
import random

import pytest

from lexmill.base.errors import UserError
from lexmill.training.guard import Guard


def run(guard: Guard, losses: list[float], first: int = 1) -> list[int]:
    """The steps that are skipped."""
    return [step for step, loss in enumerate(losses, first) if guard.judge(step, loss, 1.0)]


def noise(mean: float, deviation: float, count: int, seed: int = 1) -> list[float]:
    generator = random.Random(seed)
    return [generator.gauss(mean, deviation) for _ in range(count)]


def test_a_spike_is_skipped_and_its_reason_reported() -> None:
    guard = Guard()
    assert run(guard, noise(3.0, 0.05, 200)) == []
    reason = guard.judge(201, 4.0, 1.0)
    assert reason is not None
    assert reason.startswith("the loss is 4, more than 6 deviations above the recent mean: 3.")
    assert run(guard, noise(3.0, 0.05, 50, seed=2), 202) == []
    assert guard.skipped == 1


def test_the_bound_is_six_deviations_above_the_mean() -> None:
    """Losses 2 and 4 in turn: mean 3, deviation 1."""
    for loss, skipped in [(8.99, False), (9.01, True), (-50.0, False)]:
        guard = Guard(window=100)
        assert run(guard, [2.0, 4.0] * 50) == []
        assert bool(guard.judge(101, loss, 1.0)) is skipped


def test_only_the_window_counts() -> None:
    guard = Guard(window=20)
    assert run(guard, [9.0] * 30 + [9.0 - 0.2 * i for i in range(30)] + [3.2] * 20) == []
    assert guard.judge(81, 9.0, 1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_skipped_from_the_first_step_on(bad: float) -> None:
    guard = Guard()
    assert guard.judge(1, bad, 1.0) == f"the loss is {bad}"
    assert guard.judge(2, 1.0, bad) == f"the gradient's norm is {bad}"
    assert guard.judge(3, 1.0, 1.0) is None
    assert guard.skipped == 2


def test_the_first_losses_cannot_stand_out() -> None:
    assert run(Guard(), [1.0, 50.0, 1.0, 1000.0] * 4) == []


def test_a_falling_loss_and_a_slow_rise_pass() -> None:
    falling = [10.8 * math.exp(-step / 40) + 2 for step in range(300)]
    rising = [falling[-1] + 0.01 * step for step in range(500)]
    assert run(Guard(), falling + rising) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_noise_of_a_tiny_batch_passes(seed: int) -> None:
    """Batches of 16 exponential losses: a deviation of 25 % of the mean, and a long tail upwards."""
    generator = random.Random(seed)
    losses = [sum(generator.expovariate(1 / 3.0) for _ in range(16)) / 16 for _ in range(3000)]
    assert run(Guard(), losses) == []


def test_a_constant_loss_does_not_make_it_nervous() -> None:
    for level in (0.0, 1e-6, 3.0):
        guard = Guard()
        assert run(guard, [level] * 100 + [level * 1.02 + 0.05, level]) == []
        assert guard.judge(103, level * 1.1 + 0.3, 1.0)


def test_a_new_level_becomes_normal_but_a_ruined_model_does_not() -> None:
    """Other data with a somewhat higher loss is learned from after a few steps; 100 times the loss is not."""
    shifted = Guard()
    skipped = run(shifted, noise(2.0, 0.1, 200) + noise(3.0, 0.1, 200, seed=3))
    assert 1 <= len(skipped) <= 8
    assert max(skipped) < 230
    with pytest.raises(UserError, match="step 211 would be the 11th skipped of 100 steps"):
        run(Guard(), noise(2.0, 0.1, 200) + [200.0] * 100)


def test_too_many_end_the_run_and_name_the_step() -> None:
    guard = Guard(window=50, most=3)
    for step in range(1, 101):  # one in 20: at most three in 50
        guard.judge(step, math.nan if step % 20 == 0 else 1.0, 1.0)
    with pytest.raises(UserError, match=r"step 101 would be the 4th skipped of 50 steps \(the loss is nan\): lower"):
        guard.judge(101, math.nan, 1.0)
    with pytest.raises(UserError, match="step 4 would be the 4th skipped of 4 steps"):
        run(Guard(window=50, most=3), [math.nan] * 10)


def test_it_goes_on_after_a_resume_as_if_nothing_had_happened() -> None:
    losses = noise(3.0, 0.5, 150) + [math.nan, 40.0, 3.0] * 20
    straight, first, second = Guard(most=100), Guard(most=100), Guard(most=100)
    wanted = run(straight, losses)
    got = run(first, losses[:160])
    second.restore(json.loads(json.dumps(first.state())))
    assert got + run(second, losses[160:], 161) == wanted
    assert second.state() == straight.state()
    assert second.skipped == len(wanted) >= 20


def test_a_senseless_window_is_refused() -> None:
    with pytest.raises(ValueError, match="window 5 must be at least 20"):
        Guard(window=5)
