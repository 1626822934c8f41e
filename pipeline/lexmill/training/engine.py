"""`fit`: train what a `Task` describes on the devices of the execution settings; resumes after a kill.

Key properties:
* The gradient of a step is that of (sum of losses) / (number of targets) over the whole global batch, however it is
  cut into micro-batches and ranks: sums are backpropagated and divided once by the total count.
* Data, learning rate and dropout are functions of (seed, step, micro-batch, data rank), so a resumed training gives
  the same weights and optimizer state, to the bit, as one that was never stopped.
* A step whose loss or gradient is not finite, or whose loss is an outlier, is skipped (`guard`).
Overhead: under a millisecond a step; 2 s to import torch's compiler and Lightning's Fabric.
"""

from __future__ import annotations

import logging
import math
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import progress
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.ranks import is_first_process
from lexmill.compute.cores import cores
from lexmill.compute.execution import Execution
from lexmill.compute.memory import keep_freed_memory
from lexmill.models.common.first_call import settle_vector_math
from lexmill.training import continuing
from lexmill.training.checkpoints import CheckpointFolder
from lexmill.training.micro_batch import explain_out_of_memory
from lexmill.training.seeding import derive, seed_all
from lexmill.training.settings import TrainingSettings
from lexmill.training.task import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from lexmill.training.watching import Watch


@dataclass(frozen=True)
class FitResult:
    """The outcome of a training; `task.module` then holds the kept weights, on the CPU.

    Attributes:
        step: optimizer steps made (fewer than requested after early stopping).
        tokens: targets seen, over all ranks.
        best_step: the step with the best validation metric.
        train_loss: the newest row of the curve (nats a target).
        metrics: the validation metrics of the kept weights.
        rows: the curve, see `curve.COLUMNS`.
        stopped_early: whether early stopping ended it.
        skipped: steps that the guard skipped.
        seconds, steps_now: wall time and steps of this process alone (after a resume, only those since).
        first_rank: whether this process writes the results.
    """

    step: int
    tokens: int
    best_step: int
    train_loss: float
    metrics: dict[str, float]
    rows: list[dict[str, float]]
    stopped_early: bool
    skipped: int
    seconds: float
    steps_now: int
    first_rank: bool

    @property
    def rate(self) -> float:
        """Targets per second of this process's steps."""
        return self.tokens / self.step * self.steps_now / max(self.seconds, 1e-9)


def set_threads(execution: Execution) -> int:
    """Set and return torch's threads: those of the settings (0: all cores), divided among processes on a CPU."""
    import torch

    threads = execution.threads or cores()
    if execution.accelerator == "cpu":
        threads = max(1, threads // execution.devices)
    torch.set_num_threads(threads)
    settle_vector_math()
    return threads


def fit(
    task: Task,
    settings: TrainingSettings,
    execution: Execution,
    *,
    name: str,
    identity: Mapping[str, Any],
    watch: Watch | None = None,
) -> FitResult:
    """Train `task.module` from the newest checkpoint of the same identity, or from the start.

    Each device is a process that runs the caller's whole command; only the one with `first_rank` writes results.

    Args:
        name: the model's name, for the progress bar and the checkpoint folder.
        identity: what, besides the settings, determines the trajectory (inputs, code, seeds): plain JSON data.
            Checkpoints stay until the stage calls `checkpoint_folder(...).finish()`, once its outputs are in place.
        watch: follows the training on its first rank; the caller closes it.

    Raises:
        UserError: too many steps had to be skipped (names the last), memory ran out, a checkpoint belongs to another
            training, or this machine or network cannot do what the execution settings ask for.
        Terminated, Interrupted: SIGTERM or Ctrl-C arrived; a checkpoint is written.
        RetryableError: another process trains the same, or a process of this training was killed.
    """
    from lexmill.training import parallel
    from lexmill.training.loop import Loop

    _check_device(execution)
    parallel.check(task.module, execution)
    set_threads(execution)
    keep_freed_memory()
    folder = checkpoint_folder(settings, execution, name, identity)
    first = is_first_process()
    with folder.locked() if first else nullcontext(), progress.bar(name, settings.steps) as bar:
        seed_all(derive(settings.seed, "training"))  # for draws outside of a step
        loop = Loop(task, settings, execution, folder, bar=bar, watch=watch)
        begun = time.monotonic()
        loop.stopping.install()
        try:
            with explain_out_of_memory(execution.micro_batch.tokens):
                loop.run(_launched(execution))
        except BaseException as error:
            loop.give_up()
            if execution.world > 1 and parallel.lost_another(error):
                raise RetryableError(
                    "another process of this training ended (see its own message above, if any); the same command"
                    " resumes from the last checkpoint"
                ) from error
            raise
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
        skipped=loop.guard.skipped,
        seconds=time.monotonic() - begun,
        steps_now=loop.step - loop.started_at,
        first_rank=first,
    )


def checkpoint_folder(
    settings: TrainingSettings, execution: Execution, name: str, identity: Mapping[str, Any]
) -> CheckpointFolder:
    """Return where `fit` with the same arguments keeps its resumable checkpoints."""
    return CheckpointFolder(
        Path(execution.checkpoint_root), name, {**identity, "settings": continuing.identity(settings)}
    )


def _check_device(execution: Execution) -> None:
    import torch

    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    found = there[execution.accelerator]
    if found == 0:
        raise UserError(f"accelerator: there is no {execution.accelerator} device here that torch can use; choose cpu")
    if execution.accelerator == "cuda" and found < execution.devices:
        raise UserError(f"devices: {execution.devices} are asked for, but this machine has {found}")


def _launched(execution: Execution) -> Fabric:
    """Start the other processes of this training and connect them all."""
    with _hidden("torchmetrics"):
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.ddp import DDPStrategy
        from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
        from lightning_fabric.strategies.strategy import Strategy
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning_fabric")

    strategy: str | Strategy = "auto"
    backend = "nccl" if execution.accelerator == "cuda" else "gloo"
    if execution.strategy == "ddp":
        strategy = DDPStrategy(process_group_backend=backend, broadcast_buffers=False)
    elif execution.sharded:
        strategy = ModelParallelStrategy(
            parallelize_fn=lambda module, _mesh: module,  # `parallel.prepare` has done it
            data_parallel_size=execution.world // execution.tensor_parallel,
            tensor_parallel_size=execution.tensor_parallel,
            process_group_backend=backend,
        )
    devices, nodes = execution.devices, execution.nodes
    fabric = Fabric(accelerator=execution.accelerator, devices=devices, num_nodes=nodes, strategy=strategy)
    fabric.launch()
    return fabric


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Make a package appear not installed, unless it is already imported.

    Fabric imports torchmetrics only for its version, and with it scipy and transformers: 2 s and 130 MiB.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # importing it now raises ImportError
    try:
        yield
    finally:
        del sys.modules[package]
