"""The engine learns, weighs every target alike however a batch is cut, and stops where it must."""

import math
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lexmill.base.errors import RetryableError, Terminated, UserError
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.models.common.state import snapshot
from lexmill.params.optimizers import AdamW, CosineSchedule
from lexmill.training import schedules
from lexmill.training.engine import checkpoint_folder
from lexmill.training.task import Arrays, micro_batches
from tests.training.arithmetic_task import ENTROPY, LENGTH, SOBER, ArithmeticTask, settings, train


def assert_same_weights(one: nn.Module, other: nn.Module, tolerance: float = 0.0) -> None:
    for name, value in snapshot(one).items():
        torch.testing.assert_close(snapshot(other)[name], value, rtol=tolerance, atol=tolerance, msg=name)


def test_a_tiny_gpt_learns_down_to_the_entropy(tmp_path: Path) -> None:
    task = ArithmeticTask(rows=32)
    result = train(task, tmp_path, settings(steps=200, validate_every=100), checkpoint_seconds=1e9)
    assert ENTROPY - 0.02 < result.train_loss < ENTROPY + 0.04
    assert result.metrics["valid_loss"] < 0.25
    assert result.metrics["targets"] == 11 * 7
    assert result.tokens == 200 * 32 * 7


def slow_training(task: ArithmeticTask, steps: int) -> list[float]:
    """The same training in plain torch, without a thing of ours; returns the losses."""
    chosen = settings(steps=steps)
    matrices = [p for p in task.module.parameters() if p.ndim >= 2]
    vectors = [p for p in task.module.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-2,
        betas=(0.9, 0.95),
        eps=1e-3,
    )
    losses = []
    for step in range(steps):
        batch = task.batch(step, 0, 1)
        logits = task.module(torch.from_numpy(batch["inputs"]))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch["targets"]).flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(task.module.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * schedules.factor(chosen.schedule, step + 1, steps=steps, warmup=chosen.warmup_steps)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("micro", ["whole", 1, 14, 28])
def test_however_a_batch_is_cut_the_step_is_that_of_plain_torch(tmp_path: Path, micro: str | int) -> None:
    ours, theirs = ArithmeticTask(rows=7, ragged=True), ArithmeticTask(rows=7, ragged=True)
    result = train(ours, tmp_path, settings(keep="last", optimizer=SOBER), micro_batch=micro, checkpoint_seconds=1e9)
    losses = slow_training(theirs, 12)
    np.testing.assert_allclose([row["train_loss"] for row in result.rows], losses, rtol=1e-5)
    assert_same_weights(ours.module, theirs.module, 1e-5)


def test_micro_batches_are_all_rows_once_and_within_the_bound() -> None:
    rows = {"a": np.arange(35).reshape(7, 5), "b": np.arange(7)}
    parts = micro_batches(rows, 11)
    assert [len(part["a"]) for part in parts] == [2, 2, 2, 1]
    for name, whole in rows.items():
        assert np.array_equal(np.concatenate([part[name] for part in parts]), whole)
    assert len(micro_batches(rows, 1)) == 7
    assert micro_batches(rows, 0) == [rows]
    assert micro_batches({"a": np.zeros((0, 5))}, 10) == []
    with pytest.raises(ValueError, match="different numbers of rows"):
        micro_batches({"a": np.zeros(3), "b": np.zeros(4)}, 1)


class InParts(ArithmeticTask):
    """Cuts each batch after its second row, and records the rows of each pass."""

    def __init__(self) -> None:
        super().__init__(rows=7, ragged=True)
        self.passes: list[int] = []

    def parts(self, batch: Arrays, pass_cost: int) -> list[Arrays]:
        assert pass_cost == 32  # of a CPU
        return [{name: array[rows] for name, array in batch.items()} for rows in (slice(2), slice(2, None))]

    def loss_sum(self, module: Any, batch: Any) -> Any:
        self.passes.append(len(next(iter(batch.values()))))
        return super().loss_sum(module, batch)


def test_the_parts_of_a_task_go_through_the_network_one_after_another(tmp_path: Path) -> None:
    ours, theirs = InParts(), ArithmeticTask(rows=7, ragged=True)
    train(ours, tmp_path, settings(keep="last", optimizer=SOBER), micro_batch=4 * LENGTH, checkpoint_seconds=1e9)
    slow_training(theirs, 12)
    assert_same_weights(ours.module, theirs.module, 1e-5)
    assert ours.passes[:3] == [2, 4, 1]


class Wavering(ArithmeticTask):
    """Its metric at each look is given, more is better."""

    metric, higher_is_better = "accuracy", True

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.values, self.looked = list(values), 0
        self.snapshots: list[dict[str, Tensor]] = []

    def validation_metrics(self, sums: Any) -> dict[str, float]:
        self.snapshots.append(snapshot(self.module))
        self.looked += 1
        value = self.values[self.looked - 1] if self.looked <= len(self.values) else 0.0
        return {**super().validation_metrics(sums), "accuracy": value}


def test_the_best_weights_are_kept_and_of_equals_the_first(tmp_path: Path) -> None:
    task = Wavering([0.5, 0.7, 0.7, 0.2])
    result = train(task, tmp_path, settings(steps=16))
    assert (result.best_step, result.step, result.stopped_early) == (8, 16, False)
    assert result.metrics["accuracy"] == 0.7
    assert all(torch.equal(value, task.snapshots[1][name]) for name, value in snapshot(task.module).items())


def test_patience_ends_the_training(tmp_path: Path) -> None:
    task = Wavering([0.5, 0.4, 0.5, 0.9])
    result = train(task, tmp_path, settings(steps=400, patience=2))
    assert (result.step, result.best_step, result.stopped_early) == (12, 4, True)


def test_the_last_looks_are_averaged_and_looked_at(tmp_path: Path) -> None:
    task = Wavering([0.1, 0.2, 0.3, 0.4])
    result = train(task, tmp_path, settings(steps=16, keep="average", averaged=3))
    assert task.looked == 5
    for name, value in snapshot(task.module).items():
        wanted = sum(one[name].double() for one in task.snapshots[1:4]) / 3
        assert torch.equal(value, wanted.float())
    assert result.metrics["accuracy"] == 0.0  # the fifth look's


@pytest.mark.parametrize(("best", "chosen"), [(2, (1, 3)), (3, (1, 3, 2)), (9, (0, 1, 2, 3))])
def test_the_best_looks_are_averaged_and_looked_at(tmp_path: Path, best: int, chosen: tuple[int, ...]) -> None:
    task = Wavering([0.2, 0.4, 0.3, 0.4])
    result = train(task, tmp_path, settings(steps=16, keep="average_best", averaged=best))
    assert (task.looked, result.best_step) == (5, 8)
    for name, value in snapshot(task.module).items():
        wanted = sum(task.snapshots[i][name].double() for i in chosen) / len(chosen)
        assert torch.allclose(value, wanted.float(), rtol=1e-6, atol=1e-8)
    assert result.metrics["accuracy"] == 0.0  # the fifth look's


class WeightsAt:
    """The weights before each step, from `first` on."""

    def __init__(self, task: ArithmeticTask, first: int) -> None:
        self.seen: dict[int, dict[str, Tensor]] = {}
        batch = task.batch

        def noting(step: int, rank: int, world: int) -> Arrays:
            self.seen[step] = snapshot(task.module) if step >= first else {}
            return batch(step, rank, world)

        task.batch = noting  # type: ignore[method-assign]


class Breaking(ArithmeticTask):
    """Its loss is infinite at these steps (from 1), or only its gradient is."""

    def __init__(self, at: set[int], gradient_only: bool = False) -> None:
        super().__init__()
        self.at, self.gradient_only, self.seen = at, gradient_only, 0

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        loss, count = super().loss_sum(module, batch)
        if module.training:
            self.seen += 1
        if module.training and self.seen in self.at:
            loss = (loss - loss.detach()).sqrt() if self.gradient_only else loss * math.inf
        return loss, count


@pytest.mark.parametrize("gradient_only", [False, True])
def test_a_broken_step_is_not_taken_but_counted_and_reported(
    tmp_path: Path, gradient_only: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Breaking({6}, gradient_only)
    before = WeightsAt(task, 5)
    result = train(task, tmp_path, settings(keep="last"))
    assert (result.step, result.skipped, result.tokens) == (12, 1, 12 * 6 * 7)
    assert [row["skipped"] for row in result.rows] == [0] * 5 + [1] * 7
    assert [row["step"] for row in result.rows if "train_loss" not in row] == [6]
    assert all(math.isfinite(value) for row in result.rows for value in row.values())
    what = "the gradient's norm is" if gradient_only else "the loss is inf"
    assert f"step 6 is skipped: {what}" in capsys.readouterr().err
    assert all(torch.equal(value, before.seen[6][name]) for name, value in before.seen[5].items())
    assert not all(torch.equal(value, before.seen[7][name]) for name, value in before.seen[6].items())
    assert all(value.isfinite().all() for value in snapshot(task.module).values())


def test_what_was_skipped_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    task = Breaking({3})
    task.validation_batches = lambda rank, world: (os.kill(os.getpid(), signal.SIGTERM), [])[1]  # type: ignore[method-assign]
    with pytest.raises(Terminated):
        train(task, tmp_path)
    result = train(ArithmeticTask(), tmp_path)
    assert (result.steps_now, result.skipped, result.rows[-1]["skipped"]) == (8, 1, 1)


def test_too_many_broken_steps_end_the_training_with_a_sound_checkpoint(tmp_path: Path) -> None:
    task = Breaking(set(range(4, 40)))
    with pytest.raises(UserError, match="step 14 would be the 11th skipped"):
        train(task, tmp_path, settings(steps=40))
    assert all(value.isfinite().all() for value in snapshot(task.module).values())


class Spoiled(ArithmeticTask):
    """Its weights break between two steps, while loss and gradient are sound."""

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        if step == 5:
            with torch.no_grad():
                self.module.norm.weight[0] = math.nan  # type: ignore[union-attr, operator, index]
        return super().batch(step, rank, world)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        if module.training and not module.norm.weight.isfinite().all():
            return sum((p * 0).nan_to_num().sum() for p in module.parameters()) + torch.tensor(1.0), 1
        return super().loss_sum(module, batch)


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'norm\.weight' of weights.safetensors is not finite any more"):
        train(Spoiled(), tmp_path, settings(steps=40))
    (folder,) = tmp_path.iterdir()
    assert sorted(path.name for path in folder.glob("step-*")) == ["step-00000004", "step-00000005"]


class Empty(ArithmeticTask):
    def validation_batches(self, rank: int, world: int) -> list[Arrays]:
        return []


def test_an_empty_valid_split_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="valid split is empty"):
        train(Empty(), tmp_path)


class Targetless(ArithmeticTask):
    def batch(self, step: int, rank: int, world: int) -> Arrays:
        batch = super().batch(step, rank, world)
        return {**batch, "targets": np.full_like(batch["targets"], IGNORED)}


def test_a_batch_without_a_target_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the batch of step 1 holds no target"):
        train(Targetless(), tmp_path)


def test_a_training_that_runs_already_is_not_started_twice(tmp_path: Path) -> None:
    from tests.training.arithmetic_task import execution, identity

    folder = checkpoint_folder(settings(), execution(tmp_path), "tiny", identity(ArithmeticTask()))
    with folder.locked(), pytest.raises(RetryableError, match="another run trains this very model"):
        train(ArithmeticTask(), tmp_path)
    train(ArithmeticTask(), tmp_path)


def test_bf16_trains_and_keeps_float32_weights(tmp_path: Path) -> None:
    task = ArithmeticTask(rows=16)
    result = train(task, tmp_path, settings(steps=60, precision="bf16-mixed"), checkpoint_seconds=1e9)
    assert result.train_loss < 1.0
    assert all(value.dtype == torch.float32 for value in snapshot(task.module).values())


def test_the_curve_holds_what_was_measured(tmp_path: Path) -> None:
    result = train(ArithmeticTask(), tmp_path, settings(steps=10))
    assert [row["step"] for row in result.rows] == list(range(1, 11))
    assert [row["step"] for row in result.rows if "valid_loss" in row] == [4, 8, 10]
    last = result.rows[-1]
    assert last["tokens"] == 10 * 6 * 7
    assert last["epoch"] == 2.5
    assert last["lr"] == pytest.approx(1e-2 * 0.1)
    assert isinstance(settings().schedule, CosineSchedule)
    assert isinstance(settings().optimizer, AdamW)
