"""The Lightning module behind `engine.fit`: one optimizer step per training_step, by manual optimisation.

Lightning brings devices, precision, processes and the gradient exchange of data-parallel training; the order of the
data, the accumulation, the looks at valid and the checkpoints are ours.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lexmill.errors import UserError
from lexmill.execution import Execution
from lexmill.models.common.state import load_weights, snapshot
from lexmill.progress import Bar
from lexmill.training import optimizers, random_states, schedules
from lexmill.training.checkpoints import CheckpointFolder, Saved
from lexmill.training.curve import Curve
from lexmill.training.keeping import Keeper
from lexmill.training.seeding import derive, seed_step
from lexmill.training.settings import TrainingSettings
from lexmill.training.stopping import Stopping
from lexmill.training.task import Task, micro_batches, tensors


class TrainingModule(LightningModule):
    """Runs a `Task` under a Lightning trainer."""

    bar: Bar

    def __init__(self, task: Task, settings: TrainingSettings, execution: Execution, folder: CheckpointFolder) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.module: nn.Module = task.module
        self.task, self.settings, self.execution, self.folder = task, settings, execution, folder
        self.curve = Curve.of_length(settings.steps)
        self.keeper = Keeper(
            task.metric, task.higher_is_better, settings.keep, settings.average_last, settings.patience
        )
        self.stopping = Stopping()
        self.step = 0  # optimizer steps done
        self._saved: Saved | None = None
        self._optimizers: optimizers.Optimizers
        self._stop_signal = 0
        self._next_checkpoint = 0.0
        self._row: dict[str, float] = {}

    # ---------------------------------------------------------------- start

    def resume(self) -> int:
        """Take up the newest checkpoint, if there is one; returns the steps already done."""
        saved = self.folder.latest()
        if saved is not None:
            load_weights(self.module, saved.tensors["weights"], "the checkpoint's weights")
            self.curve.restore(saved.state["curve"])
            looked = {name: one for name, one in saved.tensors.items() if name == "best" or "recent-" in name}
            self.keeper.restore(saved.state["keeper"], looked)
            self.step = saved.step
            self._saved = saved
        return self.step

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        self._optimizers = optimizers.build(self.module, self.settings.optimizer)
        if self._saved is not None:
            self._optimizers.load_state_tensors(self._saved.tensors["optimizer"])
            random_states.restore(self._saved.tensors["random"], self._saved.state["random"])
            self._saved = None  # frees its memory
        return self._optimizers.parts

    def on_train_start(self) -> None:
        self.stopping.install()  # Lightning has just put its own handlers in place
        self._next_checkpoint = time.monotonic() + self.execution.checkpoint_seconds

    # ---------------------------------------------------------------- a step

    def training_step(self, step: int, _batch_index: int) -> None:
        """Forward and backward over this rank's micro-batches of global batch `step`, then one update."""
        rows = self.task.batch(step, self.global_rank, self.trainer.world_size)
        parts = micro_batches(rows, self.execution.micro_batch_tokens)
        total, count = 0.0, 0
        for index, part in enumerate(parts):
            seed_step(derive(self.settings.seed, "step", step, index, self.global_rank), self.device)
            with nullcontext() if index == len(parts) - 1 else self._no_exchange():
                loss, targets = self.task.loss_sum(self.module, tensors(part, self.device))
                self.manual_backward(loss)
            total += float(loss.detach())
            count += int(targets)
        if not parts:
            self._empty_share()
        self._update(step + 1, total, count)

    def _no_exchange(self) -> Any:
        """Gradients are exchanged in the last micro-batch only."""
        wrapped = self.trainer.strategy.model
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    def _empty_share(self) -> None:
        """A rank without rows takes part in the exchange with zeros."""
        if self.trainer.world_size > 1:
            firsts = [p.reshape(-1)[0] for p in self.module.parameters() if p.requires_grad]
            self.manual_backward(torch.stack(firsts).sum() * 0.0)

    def _update(self, step: int, total: float, count: int) -> None:
        total, count = self._over_ranks(total, count)
        factor = self._factor(step)
        rate = self.settings.optimizer.lr * factor
        if not math.isfinite(total):
            raise self._not_finite("loss", step, rate)
        if count == 0:
            raise UserError(f"the batch of step {step} holds no target; the train split may be empty")
        gradients = [p.grad for p in self._optimizers.parameters() if p.grad is not None]
        # Exchanged gradients are means over the ranks: world / count makes them the mean over all targets.
        scale = self.trainer.world_size / count
        norm = float(nn.utils.get_total_norm(gradients)) * scale
        if not math.isfinite(norm):
            raise self._not_finite("gradient", step, rate)
        limit = self.settings.clip_norm
        torch._foreach_mul_(gradients, scale * min(1.0, limit / norm) if 0 < limit < norm else scale)
        self._optimizers.set_learning_rates(factor)
        self._optimizers.step()
        self._optimizers.zero_grad()
        self.step = step
        self.curve.add(total, count)
        self._row = {"lr": rate, "grad_norm": norm, "train_loss": total / count}

    def _factor(self, step: int) -> float:
        s = self.settings
        return schedules.factor(s.schedule, step, steps=s.steps, warmup=s.warmup_steps, decay=s.decay_steps)

    def _over_ranks(self, total: float, count: int) -> tuple[float, int]:
        """Sum over ranks; a stop signal that any rank got is known to all at the same step."""
        self._stop_signal = self.stopping.signal
        if self.trainer.world_size == 1:
            return total, count
        sums = self._summed(torch.tensor([total, count, self._stop_signal], dtype=torch.float64))
        self._stop_signal = self._stop_signal or int(sums[2] > 0) * 15
        return float(sums[0]), int(sums[1])

    def _summed(self, numbers: Tensor) -> Tensor:
        if self.trainer.world_size > 1:
            numbers = numbers.to(self.device)
            torch.distributed.all_reduce(numbers)
        return numbers.cpu()

    def _not_finite(self, what: str, step: int, rate: float) -> UserError:
        return UserError(
            f"the {what} is not finite at step {step} (learning rate {rate:.3g}): lower optimizer.lr, lengthen"
            " schedule.warmup_steps or set clip_norm; nothing of this step was saved"
        )

    # ---------------------------------------------------------------- between steps

    def on_train_batch_end(self, *_: Any) -> None:
        step, last = self.step, self.step == self.settings.steps
        metrics: dict[str, float] | None = None
        if last or step % self.settings.evaluate_every == 0:
            metrics = self.look()
            if not math.isfinite(metrics["valid_loss"]):
                raise self._not_finite("valid loss", step, self._row["lr"])
            self.keeper.look(step, metrics, self.module)
        shown = {"loss": self._row["train_loss"], "lr": self._row["lr"]}
        if metrics is not None or self.curve.due(step):
            valid = None if metrics is None else metrics["valid_loss"]
            self.curve.row(step, self.task.epochs(step), self._row["lr"], self._row["grad_norm"], valid)
        newest = self.curve.last("valid_loss")
        self.bar.update(1, **shown, **({} if newest is None else {"valid": newest}))
        if self.keeper.exhausted:
            self.trainer.should_stop = True
        elif not last:
            self._checkpoint_or_stop(step)

    def _checkpoint_or_stop(self, step: int) -> None:
        if self.global_rank == 0 and (self._stop_signal or time.monotonic() >= self._next_checkpoint):
            self.save()
            self._next_checkpoint = time.monotonic() + self.execution.checkpoint_seconds
        if self._stop_signal:
            raise self.stopping.error(step, self._stop_signal)

    @torch.no_grad()
    def look(self) -> dict[str, float]:
        """The metrics of the present weights on the whole valid split, over all ranks."""
        self.module.eval()
        with self.trainer.precision_plugin.val_step_context():
            sums: Tensor | None = None
            for rows in self.task.validation_batches(self.global_rank, self.trainer.world_size):
                one = self.task.validation_sums(self.module, tensors(rows, self.device))
                one = torch.as_tensor(one).to("cpu", torch.float64)
                sums = one if sums is None else sums + one
        self.module.train()
        return self.task.validation_metrics(self._summed_or_zero(sums).tolist())

    def _summed_or_zero(self, sums: Tensor | None) -> Tensor:
        """The sum over ranks, where a rank without a batch does not know how many numbers there are."""
        if self.trainer.world_size == 1:
            if sums is None:
                raise UserError("the valid split is empty; give splits.valid a larger share")
            return sums
        length = torch.tensor([0 if sums is None else len(sums)], dtype=torch.float64).to(self.device)
        torch.distributed.all_reduce(length, op=torch.distributed.ReduceOp.MAX)
        if int(length) == 0:
            raise UserError("the valid split is empty; give splits.valid a larger share")
        return self._summed(torch.zeros(int(length), dtype=torch.float64) if sums is None else sums)

    def save(self) -> None:
        """Write a checkpoint of the present state."""
        self.folder.save(
            self.step,
            {"curve": self.curve.state(), "keeper": self.keeper.state(), "random": random_states.plain()},
            {
                "weights": snapshot(self.module),
                "optimizer": self._optimizers.state_tensors(),
                "random": random_states.tensors(),
                **self.keeper.tensors(),
            },
        )

    def on_train_end(self) -> None:
        """Put the kept weights in place; averaged ones are new and are looked at once."""
        if self.keeper.apply(self.module):
            self.keeper.metrics = self.look()
