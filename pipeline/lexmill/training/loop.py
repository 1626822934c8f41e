"""The training loop behind `engine.fit`: one optimizer step after another, on processes that Lightning's Fabric starts.

Fabric provides devices, processes and the exchange of gradients; data order, accumulation, precision, validation and
checkpoints are ours. A training, and a checkpoint, is in one of two states: settled, when validation and curve row of
the newest step are done, or not yet settled, right after the update.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lexmill.base import progress
from lexmill.base.errors import UserError
from lexmill.base.progress import Bar
from lexmill.compute.execution import Execution
from lexmill.models.common.state import load_weights, snapshot, weights
from lexmill.training import continuing, gradients, micro_batch, optimizers, parallel, random_states, saving, schedules
from lexmill.training.checkpoints import CheckpointFolder, Saved, Stays
from lexmill.training.curve import Curve
from lexmill.training.guard import Guard
from lexmill.training.keeping import Keeper
from lexmill.training.ranks import Ranks, fetched
from lexmill.training.seeding import derive, seed_step
from lexmill.training.settings import TrainingSettings
from lexmill.training.stopping import Stopping
from lexmill.training.task import Arrays, Task, micro_batches, pass_cost, tensors
from lexmill.training.validation import StoppedInValidation, blank, validate
from lexmill.training.watching import Watch

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Loop:
    """Trains a `Task` from its newest checkpoint, or from the start, to the end."""

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
        self.task, self.settings, self.execution, self.folder = task, settings, execution, folder
        self.curve, self.guard = Curve(), Guard()
        s = settings
        self.keeper = Keeper(task.metric, task.higher_is_better, s.keep, s.averaged, s.patience, s.ema_decay)
        self.stopping = Stopping()
        self.bar = bar
        self.watch, self._watched = watch or Watch(folder.name), watch is not None  # idle until started
        self.started_at = 0  # optimizer steps made by earlier processes
        self.step = 0  # optimizer steps done
        self.ranks: Ranks
        self.module: nn.Module  # the trained network: the task's or, under a sharded strategy, a sharded copy
        self._fabric: Fabric
        self._objective: Any  # a `parallel.Objective` as Fabric wraps it
        self._optimizers: optimizers.Optimizers
        self._saver: saving.Saver
        self._micro_batch = execution.micro_batch.tokens
        self._settled = True
        self._stop_signal = 0
        self._save_now = False
        self._next_checkpoint = 0.0
        self._saved_step = -1
        self._row: dict[str, float] = {}

    def run(self, fabric: Fabric) -> None:
        """Train with a launched Fabric; the task's network then holds the kept weights, on the CPU."""
        self._set_up(fabric)
        self._start()
        while self.step < self.settings.steps and not self.keeper.exhausted:
            self._make_step()
            self._finish_step()
        self._end()

    def _set_up(self, fabric: Fabric) -> None:
        """Move the network to its devices and build its optimizers."""
        self._fabric = fabric
        self.ranks = Ranks.of(fabric.global_rank, fabric.world_size, self.execution.tensor_parallel, fabric.device)
        self._saver = saving.Saver(self.folder, self.ranks, self.execution.sharded)
        mesh = getattr(fabric.strategy, "device_mesh", None)  # where devices share a model
        self.module = parallel.prepare(self.task.module, self.execution, mesh).to(fabric.device)
        if self.module is not self.task.module:
            parallel.release(self.task.module)
        self._objective = fabric.setup_module(parallel.Objective(self.task, self.module))
        self._optimizers = optimizers.build(self.module, self.settings.optimizer, self.task.pace)

    def _start(self) -> None:
        """Resume from a checkpoint, if any, and finish the step it was saved in."""
        newest = self._newest_checkpoint()
        if newest >= 0:
            self._resume(self.folder.open(newest))
        self._next_checkpoint = time.monotonic() + self.execution.checkpoint_seconds
        if self.ranks.first and self._watched:
            self.watch.start(self.step, self.folder.path.name)
        if self.step:
            if self.ranks.first:
                progress.say(f"{self.folder.name}: resumes after step {self.step}")
            self.bar.update(self.step if self._settled else self.step - 1)
        if self.execution.micro_batch.auto:
            self._micro_batch = self._found_micro_batch()
        if not self._settled:
            self._settle()

    def _newest_checkpoint(self) -> int:
        """Return the step of the checkpoint to resume from, which the first process chooses for all; -1: none."""
        step = -1
        if self.ranks.first:
            newest = self.folder.latest(lambda state: continuing.usable(self.settings, state))
            step = -1 if newest is None else newest
            refusal = continuing.refusal(self.folder, self.settings) if newest is None else None
            if refusal is not None:
                progress.say(f"{self.folder.name}: {refusal}")
        return self.ranks.from_first(step)

    def _resume(self, saved: Saved) -> None:
        """Restore the state of a checkpoint."""
        read, state = saving.network_states(saved, self.module), saved.state
        load_weights(self.module, read.pop("weights"), "the checkpoint's weights")
        self._optimizers.load_state_tensors(saving.optimizer_state(saved, self.module))
        self.keeper.restore(state["keeper"], read)
        self.curve.restore(state["curve"])
        self.guard.restore(state["guard"])
        self._settled, self._row = state["settled"], state["row"]
        random_states.restore(saved.read("random"), state["random"])
        if "carried" in saved.files:
            self.task.carry(saved.read("carried"))
        self.started_at = self.step = self._saved_step = saved.step

    def _found_micro_batch(self) -> int:
        """Return the size that `micro_batch: auto` finds by forward and backward without exchange."""

        carried = self.task.carried()

        def trial(part: Arrays) -> None:
            with self._autocast():
                loss, _ = self.task.loss_sum(self.module, tensors(part, self.ranks.device))
            loss.backward()
            self.task.carry(carried)

        return micro_batch.choose(
            self.task.batch(0, self.ranks.data_rank, self.ranks.data_world),
            trial,
            self.module,
            kept=self.folder.path.with_name(f"{self.folder.path.name}.micro_batch.json"),
            key={"devices": self.ranks.world, "threads": torch.get_num_threads()},
            agree=self.ranks.largest,
        )

    def _make_step(self) -> None:
        """Forward and backward over this rank's micro-batches of the next global batch, then one update."""
        losses: list[Tensor] = []
        counts: list[Tensor | int] = []
        parts = list(self._parts())
        with micro_batch.explain_out_of_memory(self._micro_batch), self._autocast():
            for index, (part, weighs) in enumerate(parts):
                place = ("step", self.step, index, self.ranks.data_rank)
                seed_step(derive(self.settings.seed, *place), self.ranks.device)
                with self._exchange(last=index == len(parts) - 1):
                    loss, targets = self._objective(None if part is None else tensors(part, self.ranks.device))
                    self._fabric.backward(loss if weighs else loss * 0.0)
                if weighs:
                    losses.append(loss)
                    counts.append(targets)
            self._update(self.step + 1, losses, counts)

    def _parts(self) -> Iterator[tuple[Arrays | None, bool]]:
        """Yield this rank's micro-batches and whether each counts: some only take part in an exchange."""
        ranks = self.ranks
        batch = self.task.batch(self.step, ranks.data_rank, ranks.data_world)
        alike = self.task.parts(batch, pass_cost(ranks.device.type, self.module))
        parts = [part for arrays in alike for part in micro_batches(arrays, self._micro_batch)]
        yield from ((part, True) for part in parts)
        if self._exchanging:  # as many as the rank with the most
            empty = blank(self.task, ranks)
            yield from ((empty, False) for _ in range(ranks.largest(len(parts)) - len(parts)))
        elif not parts and ranks.data_world > 1:
            yield None, False

    @property
    def _exchanging(self) -> bool:
        """Whether a forward pass is an exchange between ranks."""
        return self.execution.strategy == "fsdp" and self.ranks.data_world > 1

    def _exchange(self, *, last: bool) -> AbstractContextManager[None]:
        """Under ddp, exchange gradients only in the last micro-batch; FSDP reduces every one."""
        if last or self.execution.strategy != "ddp":
            return nullcontext()
        return self._fabric.no_backward_sync(self._objective)

    def _autocast(self) -> AbstractContextManager[object]:
        """Return the precision's context. Fabric's caches rounded weights, so their gradients would add up in bf16."""
        if self.settings.precision == "32-true":
            return nullcontext()
        return torch.autocast(self.ranks.device.type, torch.bfloat16, cache_enabled=False)

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
            self._optimizers.set_learning_rates(factor, step)
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
        """Return the step's loss sum, targets and gradient norm (as exchanged) over all ranks.

        The same exchange spreads a stop signal to any rank, and the first rank's wish for a checkpoint.
        """
        total, count, own = fetched(losses, counts, norm)
        if self.ranks.tensor_rank:  # of the ranks with the same rows, one counts
            total, count = 0.0, 0
        self._stop_signal, self._save_now = self.stopping.signal, self.ranks.first and self._checkpoint_due()
        if self.ranks.world == 1:
            return total, int(count), own
        asked = self.stopping.vote(self._stop_signal, self.ranks.world)
        total, count, squares, votes, saves = self.ranks.summed([total, count, own**2, asked, float(self._save_now)])
        self._stop_signal = self.stopping.outcome(votes, self.ranks.world)
        self._save_now = saves > 0
        return total, int(count), math.sqrt(squares) if squares >= 0 else math.nan

    def _finish_step(self) -> None:
        """Validate, save and stop, each if due."""
        self._saver.check()
        s = self.settings
        every = self.execution.checkpoint_every_steps
        stays: Stays = "milestone" if every and self.step % every == 0 else ""
        if self.step == continuing.open_end(s):
            stays = stays or "fork"
        if stays:
            self.save(stays)  # before validation, which a longer training may run at another step
        self._settle()
        if self.ranks.first and not self.execution.sharded:
            self.watch.sample(self.step, self.module)
        if self.keeper.exhausted or self.step == s.steps:  # a stop in the last step finds a finished training
            return
        if self._stop_signal or self._save_now:
            self.save()
        if self._stop_signal:
            self._leave(self._stop_signal)

    def _settle(self) -> None:
        """Do what the last step still needs: validation and the curve's row, if due."""
        step, metrics = self.step, None
        if step == self.settings.steps or step % self.settings.validate_every == 0:
            metrics = self._validate_or_leave()
            if not math.isfinite(metrics["valid_loss"]):
                raise UserError(
                    f"the valid loss is not finite after step {step} (learning rate {self._row['lr']:.3g}): lower"
                    " optimizer.lr, lengthen schedule.warmup or set clip_norm; nothing of this step was saved"
                )
            self.keeper.record(step, metrics, self.module)
        if metrics is not None or self.curve.due(step):
            valid = None if metrics is None else metrics["valid_loss"]
            self.curve.row(step, self.task.epochs(step), self._row["lr"], self._row.get("grad_norm"), valid)
            if self.ranks.first:
                self.watch.row({**self.curve.rows[-1], **(metrics or {})})
        self._settled = True
        shown = {name: self._row[key] for name, key in (("loss", "train_loss"), ("lr", "lr")) if key in self._row}
        newest = self.curve.last("valid_loss")
        self.bar.update(1, **shown, **({} if newest is None else {"valid": newest}), **self.watch.shown())

    def _validate_or_leave(self) -> dict[str, float]:
        """Validate; a stop signal meanwhile saves the step, not yet settled, and ends the training."""
        try:
            return self._validate()
        except StoppedInValidation:
            self.save()
            self._leave(self.stopping.signal or 15)
            raise

    def _validate(self) -> dict[str, float]:
        """Return the metrics of the weights that would be kept now, on the whole validation split, over all ranks."""
        try:
            with self.watch.aside(), self.keeper.shown(self.module), self._autocast():
                return validate(
                    self.task,
                    self.module,
                    self.ranks,
                    exchanging=self._exchanging,
                    stopped=lambda: self.stopping.signal,
                )
        finally:
            parallel.reshard(self.module)

    def _leave(self, signal: int) -> None:
        self._saver.wait()
        raise self.stopping.error(self.step, signal)

    def _checkpoint_due(self) -> bool:
        """Return whether `checkpoint_seconds` have passed and none is being written (0: after each step, waiting)."""
        due = time.monotonic() >= self._next_checkpoint
        return due and (self.execution.checkpoint_seconds == 0 or not self._saver.busy)

    def save(self, stays: Stays = "") -> None:
        """Start writing a checkpoint of the current state, if this step has none yet."""
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
                    **({"carried": carried} if (carried := self.task.carried()) else {}),
                    **self.keeper.tensors(),
                },
                stays,
            )
        self._next_checkpoint = time.monotonic() + self.execution.checkpoint_seconds

    def _end(self) -> None:
        """Load the kept weights into the task's network; averaged ones are new and are validated once."""
        self._saver.wait()
        last = snapshot(self.module) if self.keeper.kept else {}
        if self.keeper.apply(self.module):
            try:
                self.keeper.metrics = self._validate()
            except StoppedInValidation:
                load_weights(self.module, last)
                self.save()
                self._leave(self.stopping.signal or 15)
        if self.module is not self.task.module:
            parallel.gather(self.module, self.task.module, keep=self.ranks.first)
        parallel.restore(self.task.module)
        self.task.module.cpu()

    def give_up(self) -> None:
        """After a failure, finish the current write without waiting for other processes."""
        if hasattr(self, "_saver"):
            self._saver.give_up()
