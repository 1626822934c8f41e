"""`fit`: trains whatever a `Task` describes, on the devices of the execution settings, and survives being killed.

Key properties:
* The gradient of a step is that of (sum of losses) / (number of targets) over the whole global batch, however it was
  cut into micro-batches and ranks: sums are backpropagated, and divided once by the count of all.
* Data, learning rate and dropout are functions of (seed, step, micro-batch, rank), so a resumed training makes the
  same weights and optimizer state, to the bit, as one that was never stopped.
* A loss or gradient that is not finite ends the training before it touches the weights.
Cost beside the network's own: under a millisecond a step.
"""

from __future__ import annotations

import logging
import math
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import progress
from lexmill.execution import Execution
from lexmill.training.checkpoints import CheckpointFolder
from lexmill.training.memory import keep_freed_memory
from lexmill.training.seeding import derive, seed_all
from lexmill.training.settings import TrainingSettings
from lexmill.training.task import Task

if TYPE_CHECKING:
    from lightning.pytorch import Trainer


@dataclass(frozen=True)
class FitResult:
    """What a training gave; `task.module` then holds the kept weights, on the CPU.

    Attributes:
        step: optimizer steps made (fewer than asked for when patience ended it).
        tokens: targets seen, over all ranks.
        best_step: the step of the best look at valid.
        train_loss: the newest row of the curve (nats a target).
        metrics: the valid metrics of the kept weights.
        rows: the curve, see `curve.COLUMNS`.
        stopped_early: whether patience ended it.
        seconds, steps_now: wall time and steps of this process alone (after a resume the rest only).
        first_rank: whether this process is the one that writes the results.
    """

    step: int
    tokens: int
    best_step: int
    train_loss: float
    metrics: dict[str, float]
    rows: list[dict[str, float]]
    stopped_early: bool
    seconds: float
    steps_now: int
    first_rank: bool


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(execution: Execution) -> int:
    """Set torch's threads for this process: those of the settings (0: all cores), shared out on a CPU."""
    import torch

    threads = execution.threads or cores()
    if execution.accelerator == "cpu":
        threads = max(1, threads // execution.devices)
    torch.set_num_threads(threads)
    return threads


def fit(
    task: Task,
    settings: TrainingSettings,
    execution: Execution,
    *,
    name: str,
    identity: Mapping[str, Any],
) -> FitResult:
    """Train `task.module` from where the newest checkpoint of the same identity left it, or from the start.

    Under `ddp` each device is a process that runs the caller's whole command: whoever writes results asks
    `first_rank` first.

    Args:
        name: the model's name, for the bar and the checkpoint folder.
        identity: what, beside the settings, the trajectory is a function of (inputs, code, seeds): plain JSON data.
            The checkpoints stay until `checkpoint_folder(...).remove()`, which the stage calls when its outputs are
            in place.

    Raises:
        UserError: a loss that is not finite (naming the step), or a checkpoint that belongs to another training.
        Terminated, Interrupted: after SIGTERM or Ctrl-C, with a checkpoint written.
        RetryableError: when another process trains the same.
    """
    from contextlib import nullcontext

    from lexmill.training.loop import TrainingModule

    set_threads(execution)
    keep_freed_memory()
    folder = checkpoint_folder(settings, execution, name, identity)
    first = all(int(os.environ.get(rank) or 0) == 0 for rank in ("LOCAL_RANK", "NODE_RANK", "RANK"))
    with folder.locked() if first else nullcontext():
        seed_all(derive(settings.seed, "training"))  # for whatever draws outside of a step
        loop = TrainingModule(task, settings, execution, folder)
        start = loop.resume()
        if start and first:
            progress.say(f"{name}: goes on after step {start}")
        begun = time.monotonic()
        loop.stopping.install()
        try:
            with progress.bar(name, settings.steps) as bar:
                if start:
                    bar.update(start)
                loop.bar = bar
                _trainer(settings, execution).fit(loop, train_dataloaders=_Steps(start, settings.steps))
        finally:
            loop.stopping.restore()
    train_loss = loop.curve.last("train_loss")
    return FitResult(
        step=loop.step,
        tokens=loop.curve.tokens,
        best_step=loop.keeper.best_step,
        train_loss=math.nan if train_loss is None else train_loss,
        metrics=loop.keeper.metrics,
        rows=loop.curve.rows,
        stopped_early=loop.step < settings.steps,
        seconds=time.monotonic() - begun,
        steps_now=loop.step - start,
        first_rank=first,
    )


def checkpoint_folder(
    settings: TrainingSettings, execution: Execution, name: str, identity: Mapping[str, Any]
) -> CheckpointFolder:
    """Where `fit` with the same arguments keeps its resumable checkpoints."""
    import dataclasses

    return CheckpointFolder(
        Path(execution.checkpoint_root), name, {**identity, "settings": dataclasses.asdict(settings)}
    )


class _Steps:
    """The optimizer steps still to do; what Lightning takes for a data loader."""

    def __init__(self, start: int, stop: int) -> None:
        self._steps = range(start, stop)

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Any:
        return iter(self._steps)


def _trainer(settings: TrainingSettings, execution: Execution) -> Trainer:
    """Lightning's trainer with everything off that we do ourselves: bars, loggers, checkpoints, samplers."""
    for noisy in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    from lightning.pytorch import Trainer
    from lightning.pytorch.strategies import DDPStrategy, Strategy

    strategy: str | Strategy = "auto"
    if execution.strategy == "ddp":
        backend = "nccl" if execution.accelerator == "cuda" else "gloo"
        strategy = DDPStrategy(process_group_backend=backend, broadcast_buffers=False)
    return Trainer(
        accelerator=execution.accelerator,
        devices=execution.devices,
        num_nodes=execution.nodes,
        strategy=strategy,
        precision=settings.precision,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        barebones=False,
    )
