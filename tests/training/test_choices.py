"""Optimizers, schedules, running means and the guard inside of the engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lexmill.base.errors import Terminated
from lexmill.models.common.state import load_weights, snapshot
from lexmill.params.length import Length
from lexmill.params.optimizers import (
    SGD,
    AdaDelta,
    AdaGrad,
    Adam,
    AdamW,
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    Muon,
    Optimizer,
    RMSprop,
    Schedule,
    WarmupStableDecaySchedule,
)
from lexmill.training import muon, schedules
from tests.training.arithmetic_task import ENTROPY, ArithmeticTask, DyingTask, settings, train

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": SGD("sgd", lr=0.5),
    "nesterov": SGD("sgd", lr=0.1, momentum=0.9, nesterov=True),
    "adagrad": AdaGrad("adagrad", lr=0.05),
    "adadelta": AdaDelta("adadelta", lr=10.0),
    "rmsprop": RMSprop("rmsprop", lr=0.003),
    "adam": Adam("adam", lr=0.01),
    "adamw": AdamW("adamw", lr=0.01),
    "muon": Muon("muon", lr=0.02, adamw_lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_learns_and_goes_on_to_the_bit_after_a_stop(tmp_path: Path, name: str) -> None:
    chosen = settings(
        steps=60, optimizer=OPTIMIZERS[name], schedule=ConstantSchedule("constant"), validate_every=60, keep="last"
    )
    with pytest.raises(Terminated):
        train(DyingTask(20, 15, rows=16, dropout=0.1), tmp_path / "a", chosen, checkpoint_seconds=1e9)
    resumed, straight = (ArithmeticTask(rows=16, dropout=0.1) for _ in range(2))
    train(resumed, tmp_path / "a", chosen, checkpoint_seconds=1e9)
    result = train(straight, tmp_path / "b", chosen, checkpoint_seconds=1e9)
    ended = snapshot(straight.module)
    assert all(torch.equal(value, ended[key]) for key, value in snapshot(resumed.module).items())
    first = result.rows[0]["train_loss"]
    assert result.metrics["valid_loss"] < first - 0.3 * (first - ENTROPY)


@pytest.mark.parametrize(
    "schedule",
    [
        CosineSchedule("cosine", final_fraction=0.0),
        LinearSchedule("linear"),
        WarmupStableDecaySchedule("warmup_stable_decay", decay=Length(4, "steps")),
    ],
)
def test_the_schedule_counts_optimizer_steps_however_a_batch_is_cut(tmp_path: Path, schedule: Schedule) -> None:
    """7 micro-batches a step must not run through the schedule 7 times as fast, and past its end below zero."""
    chosen = settings(steps=10, schedule=schedule, warmup_steps=2, decay_steps=4)
    wanted = [1e-2 * schedules.factor(schedule, s, steps=10, warmup=2, decay=4) for s in range(1, 11)]
    for micro in ("whole", "14", "7"):
        result = train(ArithmeticTask(rows=7), tmp_path / micro, chosen, micro_batch=micro, checkpoint_seconds=1e9)
        rates = [row["lr"] for row in result.rows]
        assert rates == wanted
        assert min(rates) >= 0


class Remembering(ArithmeticTask):
    """Keeps the weights after each step, and those of each look."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.steps: list[dict[str, Tensor]] = []
        self.looks: list[dict[str, Tensor]] = []

    def batch(self, step: int, rank: int, world: int) -> Any:
        self.steps.append(snapshot(self.module))
        return super().batch(step, rank, world)

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Any:
        self.looks.append(snapshot(module))
        return super().validation_sums(module, batch)


def test_a_running_mean_is_looked_at_and_kept(tmp_path: Path) -> None:
    task = Remembering(valid_batches=1)
    chosen = settings(steps=12, keep="ema", ema_decay=0.8)
    result = train(task, tmp_path, chosen, checkpoint_seconds=1e9)
    own = Remembering(valid_batches=1)
    train(own, tmp_path / "last", settings(steps=12, keep="last"), checkpoint_seconds=1e9)
    last = [*own.steps[1:], snapshot(own.module)]  # the weights after each step: those of a training without a mean
    assert all(
        torch.equal(one[k], v) for one, other in zip(task.steps[1:], last, strict=False) for k, v in other.items()
    )

    def mean(count: int) -> dict[str, Tensor]:
        shares = [0.8 ** (count - 1 - i) * 0.2 / (1 - 0.8**count) for i in range(count)]
        return {k: sum(s * one[k].double() for s, one in zip(shares, last, strict=False)) for k in last[0]}  # type: ignore[misc]

    for look, step in zip(task.looks, (4, 8, 12), strict=True):
        for name, value in mean(step).items():
            torch.testing.assert_close(look[name].double(), value, rtol=1e-5, atol=1e-6, msg=name)
    assert all(torch.equal(value, task.looks[-1][name]) for name, value in snapshot(task.module).items())
    fresh = ArithmeticTask(valid_batches=1)
    load_weights(fresh.module, snapshot(task.module))
    fresh.module.eval()
    (batch,) = fresh.validation_batches(0, 1)
    with torch.no_grad():
        sums = fresh.validation_sums(fresh.module, {k: torch.from_numpy(v) for k, v in batch.items()})
    assert fresh.validation_metrics(list(sums))["valid_loss"] == pytest.approx(result.metrics["valid_loss"], rel=1e-6)


@pytest.mark.parametrize("at", [0, 5])
def test_a_running_mean_survives_a_stop_to_the_bit(tmp_path: Path, at: int) -> None:
    chosen = settings(keep="ema", ema_decay=0.9)
    with pytest.raises(Terminated):
        train(DyingTask(at, 15, dropout=0.1), tmp_path / "a", chosen, checkpoint_seconds=1e9)
    resumed, straight = (ArithmeticTask(dropout=0.1) for _ in range(2))
    ended = train(resumed, tmp_path / "a", chosen, checkpoint_seconds=1e9)
    assert train(straight, tmp_path / "b", chosen, checkpoint_seconds=1e9).metrics == ended.metrics
    weights = snapshot(straight.module)
    assert all(torch.equal(value, weights[name]) for name, value in snapshot(resumed.module).items())


class Spiking(Remembering):
    """A few batches of another kind, whose loss stands far out."""

    def __init__(self, at: set[int], **options: Any) -> None:
        super().__init__(**options)
        self.at, self.now = at, 0

    def batch(self, step: int, rank: int, world: int) -> Any:
        self.now = step
        return super().batch(step, rank, world)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        loss, count = super().loss_sum(module, batch)
        return (loss * 50 if module.training and self.now in self.at else loss), count


def test_a_spike_leaves_the_weights_alone_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Spiking({30, 33}, rows=16)
    result = train(task, tmp_path, settings(steps=40, keep="last"), checkpoint_seconds=1e9)
    assert (result.step, result.skipped) == (40, 2)
    for step in range(1, 40):  # steps[i]: the weights before step i (from 0)
        same = all(torch.equal(value, task.steps[step][name]) for name, value in task.steps[step - 1].items())
        assert same is (step - 1 in {30, 33}), step
    assert "step 31 is skipped: the loss is" in capsys.readouterr().err
    losses = [row["train_loss"] for row in result.rows if "train_loss" in row]
    assert max(losses) < 3, "what was skipped is in no metric"
    assert np.isfinite(losses).all()


@pytest.mark.parametrize(("precision", "kind"), [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_muon_computes_as_the_precision_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: Any, kind: torch.dtype
) -> None:
    kinds: set[torch.dtype] = set()
    original = muon.orthogonalize

    def noting(matrices: Tensor) -> Tensor:
        found = original(matrices)
        kinds.add(found.dtype)
        return found

    monkeypatch.setattr(muon, "orthogonalize", noting)
    chosen = settings(steps=2, optimizer=OPTIMIZERS["muon"], precision=precision)
    task = ArithmeticTask()
    train(task, tmp_path, chosen, checkpoint_seconds=1e9)
    assert kinds == {kind}
    assert {value.dtype for value in snapshot(task.module).values()} == {torch.float32}
