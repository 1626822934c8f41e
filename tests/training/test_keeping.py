"""The keeper: best, last, mean of the last looks, running mean; patience; its state out and back."""

import json
import math
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from lexmill.models.common.state import snapshot
from lexmill.training.keeping import Keeper


class Tiny(nn.Module):
    """A tied matrix, a float buffer and an integer one."""

    count: Tensor
    level: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 2)
        self.head = nn.Linear(2, 3, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("count", torch.tensor([0]))
        self.register_buffer("level", torch.zeros(1))

    def become(self, value: float) -> None:
        with torch.no_grad():
            self.embedding.weight.fill_(value)
            self.level.fill_(10 * value)
            self.count.fill_(int(value))


def value_of(module: Tiny) -> tuple[float, float, int]:
    assert module.head.weight is module.embedding.weight
    return module.head.weight[0, 0].item(), module.level.item(), int(module.count)


def back(keeper: Keeper, **options: Any) -> Keeper:
    """Its state through a checkpoint's JSON and safetensors, into a fresh keeper."""
    fresh = Keeper(keeper.metric, keeper.higher_is_better, keeper.keep, **options)
    files = {name: load(save(tensors)) for name, tensors in keeper.tensors().items()}
    fresh.restore(json.loads(json.dumps(keeper.state(), allow_nan=False)), files)
    return fresh


@pytest.mark.parametrize("higher", [False, True])
def test_a_metric_that_is_not_a_number_is_never_best(higher: bool) -> None:
    keeper, module = Keeper("m", higher, "best", patience=3), nn.Linear(1, 1)
    for step, value in enumerate([math.nan, 1.0, math.nan, math.inf, -math.inf], start=1):
        keeper.record(step, {"m": value}, module)
    assert (keeper.best, keeper.best_step, keeper.exhausted) == (1.0, 2, True)
    assert back(keeper, patience=3).state() == keeper.state()


@pytest.mark.parametrize(("higher", "best_step"), [(False, 3), (True, 2)])
def test_the_direction_is_declared_and_not_guessed_from_the_name(higher: bool, best_step: int) -> None:
    """A metric named *_loss of which more is better is maximised only when the task says so."""
    keeper, module = Keeper("odd_loss", higher, "best"), Tiny()
    for step, value in enumerate([5.0, 7.0, 3.0, 4.0], start=1):
        module.become(step)
        keeper.record(step, {"odd_loss": value, "other": 0.0}, module)
    assert keeper.best_step == best_step
    assert not keeper.apply(module)
    assert value_of(module) == (best_step, 10 * best_step, best_step)
    assert keeper.metrics["odd_loss"] == (7.0 if higher else 3.0)


def test_best_is_not_overwritten_by_a_worse_one_nor_by_an_equal_one_after_a_resume_either() -> None:
    keeper, module = Keeper("valid_loss", False, "best"), Tiny()
    for step, value in enumerate([2.0, 1.0, 1.5, 1.0], start=1):
        module.become(step)
        keeper.record(step, {"valid_loss": value}, module)
    keeper = back(keeper)
    for step, value in ((5, 1.2), (6, math.nan), (7, 1.0)):
        module.become(step)
        keeper.record(step, {"valid_loss": value}, module)
    keeper.apply(module)
    assert (keeper.best, keeper.best_step, keeper.metrics) == (1.0, 2, {"valid_loss": 1.0})
    assert value_of(module) == (2.0, 20.0, 2)


def test_patience_counts_the_looks_without_a_gain() -> None:
    keeper, module = Keeper("m", False, "last", patience=2), Tiny()
    exhausted = []
    for step, value in enumerate([3.0, 3.0, 2.0, 2.5, 2.0, 1.0], start=1):
        keeper.record(step, {"m": value}, module)
        exhausted.append(keeper.exhausted)
        keeper = back(keeper, patience=2)
    assert exhausted == [False, False, False, False, True, False]
    never = Keeper("m", False, "last", patience=0)
    for step in range(1, 50):
        never.record(step, {"m": 1.0}, module)
    assert not never.exhausted


def test_the_last_weights_are_kept_as_they_are() -> None:
    keeper, module = Keeper("m", False, "last"), Tiny()
    keeper.record(1, {"m": 1.0}, module)
    keeper.record(2, {"m": 2.0}, module)
    module.become(7)
    assert not keeper.apply(module)
    assert value_of(module) == (7.0, 70.0, 7)
    assert (keeper.metrics, keeper.best_step, keeper.tensors()) == ({"m": 2.0}, 1, {})


def test_the_last_looks_are_averaged_tied_weights_once() -> None:
    keeper, module = Keeper("m", False, "average", averaged=3), Tiny()
    for step in (1, 2, 4, 6):
        module.become(step)
        keeper.record(step, {"m": 1.0}, module)
    assert set(keeper.tensors()["kept-0"]) == {"embedding.weight", "count", "level"}
    keeper = back(keeper, averaged=3)
    assert keeper.apply(module), "nobody has looked at the mean yet"
    assert value_of(module) == (4.0, 40.0, 6)


def test_the_running_mean_is_adams_with_its_bias_corrected() -> None:
    """Decay 0.5: after w = 1, 2, 6 the weights are 1/7, 2/7, 4/7 of them."""
    keeper, module = Keeper("m", False, "ema", ema_decay=0.5), Tiny()
    module.become(1000)  # the start has no part in it
    for value, wanted in ((1, 1), (2, 5 / 3), (6, 29 / 7)):
        module.become(value)
        keeper.update(module)
        with keeper.shown(module):
            assert value_of(module) == (pytest.approx(wanted), pytest.approx(10 * wanted), value)
        assert value_of(module) == (value, 10 * value, value), "the training goes on from its own weights"
    keeper.record(3, {"m": 1.0}, module)
    assert not keeper.apply(module), "the last look was at it"
    assert value_of(module) == (pytest.approx(29 / 7), pytest.approx(290 / 7), 6)


def test_the_running_mean_equals_its_formula_over_many_steps() -> None:
    keeper, module, steps = Keeper("m", False, "ema", ema_decay=0.99), nn.Linear(5, 4), 300
    generator = torch.Generator().manual_seed(0)
    seen = [torch.randn(4, 5, generator=generator) for _ in range(steps)]
    for one in seen:
        with torch.no_grad():
            module.weight.copy_(one)
        keeper.update(module)
    weights = torch.tensor([0.99 ** (steps - 1 - i) for i in range(steps)], dtype=torch.float64)
    wanted = (weights[:, None, None] * torch.stack(seen).double()).sum(0) / weights.sum()
    keeper.apply(module)
    torch.testing.assert_close(module.weight.detach().double(), wanted, rtol=1e-5, atol=1e-6)


def test_the_running_mean_survives_to_the_bit() -> None:
    def advance(keeper: Keeper, module: nn.Module, first: int, last: int) -> None:
        for step in range(first, last + 1):
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(step)))
            keeper.update(module)

    straight, resumed = (Keeper("m", False, "ema", ema_decay=0.9) for _ in range(2))
    module = nn.Sequential(nn.Linear(7, 3), nn.LayerNorm(3))
    advance(straight, module, 1, 20)
    advance(resumed, module, 1, 8)
    resumed = back(resumed, ema_decay=0.9)
    advance(resumed, module, 9, 20)
    one, other = straight.tensors()["ema"], resumed.tensors()["ema"]
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_weights_come_back_when_a_look_fails() -> None:
    keeper, module = Keeper("m", False, "ema", ema_decay=0.5), Tiny()
    for value in (1, 3):
        module.become(value)
        keeper.update(module)
    before = snapshot(module)
    with pytest.raises(RuntimeError, match="out of memory"), keeper.shown(module):
        raise RuntimeError("out of memory")
    assert all(torch.equal(value, before[name]) for name, value in snapshot(module).items())


@pytest.mark.parametrize("keep", ["last", "best", "average"])
def test_the_others_hold_no_running_mean(keep: Any) -> None:
    keeper, module = Keeper("m", False, keep), Tiny()
    keeper.update(module)
    assert (keeper.mean, keeper.updates, "ema" in keeper.tensors()) == (None, 0, False)
    module.become(2)
    with keeper.shown(module):
        assert value_of(module) == (2.0, 20.0, 2)
