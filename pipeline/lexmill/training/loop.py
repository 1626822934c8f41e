"""The Lightning module behind `engine.fit`: one optimizer step per training_step, by manual optimisation.

Lightning brings devices, precision and processes; the order of the data, the accumulation, the looks at valid and the
checkpoints are ours. A training is always in one of two states, and a checkpoint can hold either: `settled`, when the
look and the row that belong to the newest step are done, and not yet settled, right after the update.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lexmill.base import progress
from lexmill.base.errors import UserError
from lexmill.base.progress import Bar
from lexmill.compute.execution import Execution
from lexmill.models.common.state import load_weights, snapshot, weights
from lexmill.training import (
    continuing,
    gradients,
    micro_batch,
    optimizers,
    parallel,
    random_states,
    resuming,
    schedules,
)
from lexmill.training.checkpoints import CheckpointFolder, Saved, Stays
from lexmill.training.curve import Curve
from lexmill.training.guard import Guard
from lexmill.training.keeping import Keeper
from lexmill.training.looking import StoppedWhileLooking, blank, look
from lexmill.training.ranks import Ranks, fetched
from lexmill.training.saving import Saver
from lexmill.training.seeding import derive, seed_step
from lexmill.training.settings import TrainingSettings
from lexmill.training.steps import NOTHING_LEFT, Steps
from lexmill.training.stopping import Stopping
from lexmill.training.task import Arrays, Task, micro_batches, tensors
from lexmill.training.watching import Watch


class TrainingModule(LightningModule):
    """Runs a `Task` under a Lightning trainer."""

    def __init__(
        self,
        task: Task,
        settings: TrainingSettings,
        execution: Execution,
        folder: CheckpointFolder,
        *,
        bar: Bar,
        watch: Watch | None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.task, self.settings, self.execution, self.folder = task, settings, execution, folder
        self.module: nn.Module = task.module
        self.curve, self.guard = Curve(), Guard()
        self.keeper = Keeper(
            task.metric,
            task.higher_is_better,
            settings.keep,
            settings.average_last,
            settings.patience,
            settings.ema_decay,
        )
        self.stopping = Stopping()
        self.bar = bar
        self.watch, self._watched = watch or Watch(folder.name), watch is not None  # one that is not started is idle
        self.started_at = 0  # optimizer steps that an earlier process made
        self.step = 0  # optimizer steps done
        self.ranks: Ranks
        self._saver: Saver
        self._optimizers: optimizers.Optimizers
        self._saved: Saved | None = None
        self._micro_batch = execution.micro_batch.tokens
        self._settled = True
        self._stop_signal = 0
        self._save_now = False
        self._next_checkpoint = 0.0
        self._saved_step = -1
        self._row: dict[str, float] = {}

    # ---------------------------------------------------------------- start

    def setup(self, stage: str) -> None:
        """All processes are there: the first one chooses the checkpoint to go on from."""
        device = self.trainer.strategy.root_device
        self.ranks = Ranks.of(self.global_rank, self.trainer.world_size, self.execution.tensor_parallel, device)
        step = -1
        if self.ranks.first:
            newest = self.folder.latest(lambda state: continuing.usable(self.settings, state))
            step = -1 if newest is None else newest
            refusal = continuing.refusal(self.folder, self.settings) if newest is None else None
            if refusal is not None:
                progress.say(f"{self.folder.name}: {refusal}")
        step = self.ranks.from_first(step)
        if step >= 0:
            self._saved = self.folder.open(step)
            self.started_at = self.step = self._saved_step = step
        self._saver = Saver(self.folder, self.ranks, self.execution.sharded)

    def configure_model(self) -> None:
        mesh = self.device_mesh if self.execution.sharded else None
        module = parallel.prepare(self.task.module, self.execution, mesh)
        if module is not self.module:
            self.module = module
            parallel.release(self.task.module)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        self._optimizers = optimizers.build(self.module, self.settings.optimizer)
        return self._optimizers.parts

    def train_dataloader(self) -> Any:
        return Steps(self.step, self.settings.steps)

    def on_train_start(self) -> None:
        self.stopping.install()  # Lightning has just put its own handlers in place
        if self._saved is not None:
            self._resume(self._saved)
            self._saved = None  # closes its files
        self._next_checkpoint = time.monotonic() + self.execution.checkpoint_seconds
        if self.ranks.first and self._watched:
            self.watch.start(self.step, self.folder.path.name)
        if self.step:
            if self.ranks.first:
                progress.say(f"{self.folder.name}: goes on after step {self.step}")
            self.bar.update(self.step if self._settled else self.step - 1)
        if self.execution.micro_batch.auto:
            self._micro_batch = self._found_micro_batch()
        if not self._settled:
            self._settle()

    def _resume(self, saved: Saved) -> None:
        """Take up a checkpoint."""
        read, state = resuming.network_states(saved, self.module), saved.state
        load_weights(self.module, read.pop("weights"), "the checkpoint's weights")
        self._optimizers.load_state_tensors(resuming.optimizer_state(saved, self.module))
        self.keeper.restore(state["keeper"], read)
        self.curve.restore(state["curve"])
        self.guard.restore(state["guard"])
        self._settled, self._row = state["settled"], state["row"]
        random_states.restore(saved.read("random"), state["random"])

    def _found_micro_batch(self) -> int:
        """What `micro_batch: auto` finds, by forward and backward without exchange."""

        def trial(part: Arrays) -> None:
            with self._no_exchange(), self.trainer.precision_plugin.train_step_context():
                loss, _ = self.task.loss_sum(self.module, tensors(part, self.device))
            loss.backward()

        return micro_batch.choose(
            self.task.batch(0, self.ranks.data_rank, self.ranks.data_world),
            trial,
            self.module,
            kept=self.folder.path.with_name(f"{self.folder.path.name}.micro_batch.json"),
            key={"devices": self.ranks.world, "threads": torch.get_num_threads()},
            agree=self.ranks.largest,
        )

    # ---------------------------------------------------------------- a step

    def training_step(self, step: int, _batch_index: int) -> None:
        """Forward and backward over this rank's micro-batches of global batch `step`, then one update."""
        if step == NOTHING_LEFT or self.keeper.exhausted:
            return
        with micro_batch.memory_told(self._micro_batch):
            self._make(step)

    def _make(self, step: int) -> None:
        losses: list[Tensor] = []
        counts: list[Tensor | int] = []
        parts = list(self._parts(step))
        for index, (part, weighs) in enumerate(parts):
            seed_step(derive(self.settings.seed, "step", step, index, self.ranks.data_rank), self.device)
            with nullcontext() if index == len(parts) - 1 else self._no_exchange():
                loss, targets = self.task.loss_sum(self.module, tensors(part, self.device))
                self.manual_backward(loss if weighs else loss * 0.0)
            if weighs:
                losses.append(loss)
                counts.append(targets)
        if not parts:
            self._empty_share()
        self._update(step + 1, losses, counts)

    def _parts(self, step: int) -> Iterator[tuple[Arrays, bool]]:
        """This rank's micro-batches; where a forward pass is an exchange, as many as the rank with most has.

        Those that it only makes for the others weigh nothing.
        """
        ranks = self.ranks
        parts = micro_batches(self.task.batch(step, ranks.data_rank, ranks.data_world), self._micro_batch)
        yield from ((part, True) for part in parts)
        if self._lockstep:
            empty = blank(self.task, ranks)
            yield from ((empty, False) for _ in range(ranks.largest(len(parts)) - len(parts)))

    @property
    def _lockstep(self) -> bool:
        return self.execution.strategy == "fsdp" and self.ranks.data_world > 1

    def _no_exchange(self) -> AbstractContextManager[None]:
        """Under ddp, gradients are exchanged in the last micro-batch only."""
        wrapped = self.trainer.strategy.model
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    def _empty_share(self) -> None:
        """A rank without rows takes part in the exchange with zeros."""
        if self.ranks.data_world > 1:
            firsts = [p.reshape(-1)[0] for p in self.module.parameters() if p.requires_grad]
            self.manual_backward(torch.stack(firsts).sum() * 0.0)

    def _update(self, step: int, losses: list[Tensor], counts: list[Tensor | int]) -> None:
        grads = gradients.ready(self._optimizers.parameters())
        total, count, norm = self._exchanged(losses, counts, gradients.norm(grads, self.ranks))
        if count == 0:
            raise UserError(f"the batch of step {step} holds no target; the train split may be empty")
        # Exchanged gradients are means over the ranks: their number / count makes them the mean over all targets.
        scale = self.ranks.data_world / count
        loss, norm = total / count, norm * scale
        s = self.settings
        factor = schedules.factor(s.schedule, step, steps=s.steps, warmup=s.warmup_steps, decay=s.decay_steps)
        rate = s.optimizer.lr * factor
        reason = self.guard.judge(step, loss, norm)
        if reason is None:
            gradients.scale(grads, scale * min(1.0, s.clip_norm / norm) if 0 < s.clip_norm < norm else scale)
            self._optimizers.set_learning_rates(factor)
            self._optimizers.step()
            self.keeper.update(self.module)
            self.curve.add(total, count)
        else:
            self.curve.skip(count)
            if self.ranks.first:
                progress.say(f"{self.folder.name}: step {step} is skipped: {reason}")
        self._optimizers.zero_grad()
        self.step, self._settled = step, False
        known = {"train_loss": loss, "grad_norm": norm}
        self._row = {"lr": rate, **{name: value for name, value in known.items() if math.isfinite(value)}}
        if self.ranks.first:
            self.watch.step(step, count, loss=loss, lr=rate, grad_norm=norm, skipped=self.guard.skipped)

    def _exchanged(self, losses: list[Tensor], counts: list[Tensor | int], norm: Tensor) -> tuple[float, int, float]:
        """The step's loss sum, targets and gradient norm (as exchanged) over all ranks.

        All learn at the same step of a stop signal that any got, and that the first wants a checkpoint.
        """
        total, count, own = fetched(losses, counts, norm)
        if self.ranks.tensor_rank:  # one of those that learn from the same rows speaks for them
            total, count = 0.0, 0
        self._stop_signal, self._save_now = self.stopping.signal, self.ranks.first and self._checkpoint_due()
        if self.ranks.world == 1:
            return total, int(count), own
        asked = self.stopping.vote(self._stop_signal, self.ranks.world)
        total, count, squares, votes, saves = self.ranks.summed([total, count, own**2, asked, float(self._save_now)])
        self._stop_signal = self.stopping.outcome(votes, self.ranks.world)
        self._save_now = saves > 0
        return total, int(count), math.sqrt(squares) if squares >= 0 else math.nan

    # ---------------------------------------------------------------- between steps

    def on_train_batch_end(self, _outputs: Any, step: int, *_: Any) -> None:
        if step == NOTHING_LEFT or self.keeper.exhausted:
            self.trainer.should_stop = True
            return
        self._saver.check()
        s = self.settings
        every = self.execution.checkpoint_every_steps
        stays: Stays = "milestone" if every and self.step % every == 0 else ""
        if self.step == continuing.open_end(s):
            stays = stays or "fork"
        if stays:
            self.save(stays)  # before the look, which a longer training may make at another step
        self._settle()
        if self.ranks.first and not self.execution.sharded:
            self.watch.sample(self.step, self.module)
        if self.keeper.exhausted:
            self.trainer.should_stop = True
        elif self.step < s.steps:  # a stop in the last step finds a finished training
            if self._stop_signal or self._save_now:
                self.save()
            if self._stop_signal:
                self._leave(self._stop_signal)

    def _settle(self) -> None:
        """All that belongs to the step just made: the look at valid and the row of the curve, where they are due."""
        step, metrics = self.step, None
        if step == self.settings.steps or step % self.settings.validate_every == 0:
            metrics = self._look_or_leave()
            if not math.isfinite(metrics["valid_loss"]):
                raise UserError(
                    f"the valid loss is not finite after step {step} (learning rate {self._row['lr']:.3g}): lower"
                    " optimizer.lr, lengthen schedule.warmup or set clip_norm; nothing of this step was saved"
                )
            self.keeper.look(step, metrics, self.module)
        if metrics is not None or self.curve.due(step):
            valid = None if metrics is None else metrics["valid_loss"]
            self.curve.row(step, self.task.epochs(step), self._row["lr"], self._row.get("grad_norm"), valid)
            if self.ranks.first:
                self.watch.row({**self.curve.rows[-1], **(metrics or {})})
        self._settled = True
        shown = {name: self._row[key] for name, key in (("loss", "train_loss"), ("lr", "lr")) if key in self._row}
        newest = self.curve.last("valid_loss")
        self.bar.update(1, **shown, **({} if newest is None else {"valid": newest}), **self.watch.shown())

    def _look_or_leave(self) -> dict[str, float]:
        """A look; a stop signal on the way saves the step as it is, not yet settled, and ends the training."""
        try:
            return self._look()
        except StoppedWhileLooking:
            self.save()
            self._leave(self.stopping.signal or 15)
            raise

    def _look(self) -> dict[str, float]:
        """The metrics of the weights that are kept now, on the whole valid split, over all ranks."""
        try:
            with self.watch.aside(), self.keeper.shown(self.module):
                return look(
                    self.task,
                    self.module,
                    self.ranks,
                    lockstep=self._lockstep,
                    context=self.trainer.precision_plugin.val_step_context,
                    stopped=lambda: self.stopping.signal,
                )
        finally:
            parallel.reshard(self.module)

    def _leave(self, signal: int) -> None:
        self._saver.wait()
        raise self.stopping.error(self.step, signal)

    # ---------------------------------------------------------------- checkpoints

    def _checkpoint_due(self) -> bool:
        """Every `checkpoint_seconds`, but not while one is being written (with 0 after each step, and waited for)."""
        due = time.monotonic() >= self._next_checkpoint
        return due and (self.execution.checkpoint_seconds == 0 or not self._saver.busy)

    def save(self, stays: Stays = "") -> None:
        """Begin to write a checkpoint of the present state, if this step has none yet."""
        if self.step == self._saved_step:
            return
        self._saved_step = self.step
        with self.watch.aside():
            self._saver.save(
                self.step,
                {
                    "curve": self.curve.state(),
                    "guard": self.guard.state(),
                    "keeper": self.keeper.state(),
                    "length": self.settings.steps,
                    "open_end": continuing.open_end(self.settings),
                    "random": random_states.plain(),
                    "row": self._row,
                    "settled": self._settled,
                },
                {
                    "weights": weights(self.module),
                    "optimizer": self._optimizers.named_state(),
                    "random": random_states.tensors(),
                    **self.keeper.tensors(),
                },
                stays,
            )
        self._next_checkpoint = time.monotonic() + self.execution.checkpoint_seconds

    # ---------------------------------------------------------------- end

    def on_train_end(self) -> None:
        """Put the kept weights in place; averaged ones are new and are looked at once."""
        self._saver.wait()
        last = snapshot(self.module) if self.settings.keep == "average" else {}
        if self.keeper.apply(self.module):
            try:
                self.keeper.metrics = self._look()
            except StoppedWhileLooking:
                load_weights(self.module, last)
                self.save()
                self._leave(self.stopping.signal or 15)
        if self.module is not self.task.module:
            parallel.gather(self.module, self.task.module, keep=self.ranks.first)
        parallel.restore(self.task.module)

    def give_up(self) -> None:
        """The training has failed; what is being written is ended, and no other process waited for."""
        if hasattr(self, "_saver"):
            self._saver.give_up()
