"""A tiny training with known answers, for the tests of the engine; as a script it runs one in a process of its own.

Rows count up modulo 7 from a random start, by a step of 1 or 2 that the first two tokens show: the second token has
an entropy of ln 2, the others none.
"""

import dataclasses
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from lexmill.base.storage import write_json
from lexmill.compute.execution import Execution, MicroBatch
from lexmill.models import build, declaration
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.params.optimizers import AdamW, CosineSchedule, Muon
from lexmill.training.engine import FitResult, fit
from lexmill.training.settings import TrainingSettings
from lexmill.training.task import Arrays, Task

TOKENS, LENGTH = 7, 8
ENTROPY = math.log(2) / (LENGTH - 1)
ROWS: dict[str, Any] = {"n_layer": 6, "mixers": ("retnet", "gla", "mamba2", "gated_deltanet", "mamba", "gsa")}
"""Of linear attention: the supported rows, and one of each mechanism (decays, delta rule, scan, slots)."""


class ArithmeticTask(Task):
    """Rows have unequal numbers of targets, and `rows` need not divide by anything."""

    def __init__(
        self, rows: int = 6, dropout: float = 0.0, ragged: bool = False, valid_batches: int = 3, family: str = "gpt"
    ) -> None:
        torch.manual_seed(5)
        if family == "gpt":
            self.module = GPT(GPTShape(n_layer=1, n_head=2, d_model=16, context=LENGTH, dropout=dropout), TOKENS)
        else:
            sizes = {**declaration.family(family).tiny, **(ROWS if family == "linear_attention" else {})}
            shape = {**sizes, "context": LENGTH, "dropout": dropout}
            other: Any = build({"family": family, "shape": shape, "vocab_size": TOKENS}).train()
            self.module = other
        self.rows, self.ragged, self.valid_batches = rows, ragged, valid_batches

    def _sequences(self, seed: int, rows: int) -> np.ndarray[Any, Any]:
        random = np.random.default_rng([11, seed])
        start, by = random.integers(TOKENS, size=(rows, 1)), random.integers(1, 3, size=(rows, 1))
        return (start + by * np.arange(LENGTH)) % TOKENS

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        sequences = self._sequences(step, self.rows)
        targets = sequences[:, 1:].copy()
        if self.ragged:
            for row in range(self.rows):
                targets[row, 1 + row % 6 :] = IGNORED
        return {"inputs": sequences[rank::world, :-1], "targets": targets[rank::world]}

    def loss_sum(self, module: Any, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        return module.loss(batch["inputs"], batch["targets"]), (batch["targets"] != IGNORED).sum()

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        for index in range(rank, self.valid_batches, world):  # the last batch is smaller
            sequences = self._sequences(10**6 + index, 5 if index < 2 else 1)
            yield {"inputs": sequences[:, :-1], "targets": sequences[:, 1:]}

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        loss, count = self.loss_sum(module, batch)
        return torch.stack([loss.double(), torch.as_tensor(count).double()])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        return {"valid_loss": sums[0] / sums[1], "targets": sums[1]}

    def epochs(self, step: int) -> float:
        return step / 4


class DyingTask(ArithmeticTask):
    """Sends its process a signal at the start of a step, if it is of this data rank."""

    def __init__(self, die_at: int, number: int, die_rank: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.die_at, self.number, self.die_rank = die_at, number, die_rank

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        if step == self.die_at and rank == self.die_rank:
            os.kill(os.getpid(), self.number)
        return super().batch(step, rank, world)


class BrokenTask(ArithmeticTask):
    """Its loss is not a number at one step, or only its gradient is infinite, for those of this data rank alone."""

    def __init__(self, break_at: int, break_rank: int, gradient_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self.place, self.gradient_only = (break_at, break_rank), gradient_only

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        batch = super().batch(step, rank, world)
        return {**batch, "broken": np.full(len(batch["inputs"]), (step, rank) == self.place)}

    def loss_sum(self, module: Any, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        loss, count = super().loss_sum(module, batch)
        if module.training and batch["broken"].any():
            loss = loss + ((loss - loss.detach()).sqrt() if self.gradient_only else math.nan)
        return loss, count


# A key's bias has no gradient but rounding errors, which Adam with a tiny eps would blow up to whole steps.
SOBER = AdamW("adamw", lr=1e-2, eps=1e-3)
OPTIMIZERS = {"sober": SOBER, "muon": Muon("muon", lr=1e-2, adamw_lr=1e-2, eps=1e-3)}


def settings(steps: int = 12, **changes: Any) -> TrainingSettings:
    base = TrainingSettings(
        optimizer=AdamW("adamw", lr=1e-2),
        schedule=CosineSchedule("cosine"),
        warmup_steps=3,
        steps=steps,
        seed=2,
        validate_every=4,
    )
    return dataclasses.replace(base, **changes)


def execution(root: Path, **changes: Any) -> Execution:
    """One thread, a checkpoint after each step."""
    changes["micro_batch"] = MicroBatch.parse(changes.get("micro_batch", "whole"))
    return Execution(**{"threads": 1, "checkpoint_root": str(root), "checkpoint_seconds": 0.0, **changes})


def identity(task: Any) -> dict[str, Any]:
    """What a stage identifies its training by, in short: data, and the network's shape as it is declared."""
    shape = getattr(task.module, "shape", None)
    return {"data": "made", "config": {"shape": dataclasses.asdict(shape) if shape else {}}}


def train(task: Task, root: Path, chosen: TrainingSettings | None = None, **changes: Any) -> FitResult:
    return fit(task, chosen or settings(), execution(root, **changes), name="tiny", identity=identity(task))


def main(root: str, out: str, plan: dict[str, Any]) -> None:
    """Train by the plan, write `out` with weights and results; the ranks after the first write results only."""
    from safetensors.torch import save_file

    from lexmill.models.common.state import snapshot

    if "die_in_save" in plan:
        _die_in_save(plan["die_in_save"])
    if "die_in_piece" in plan:
        _die_in_piece(*plan["die_in_piece"])
    options = plan.get("task", {})
    task: ArithmeticTask
    if "broken" in plan:
        task = BrokenTask(*plan["broken"], **options)
    else:
        task = DyingTask(plan.get("die_at", -1), plan.get("signal", signal.SIGKILL), plan.get("die_rank", 0), **options)
    changes = dict(plan.get("settings", {}))
    if "optimizer" in plan:
        changes["optimizer"] = OPTIMIZERS[plan["optimizer"]]
    chosen = settings(**changes)
    with _work_counted(task.module, plan) as counted:
        result = train(task, Path(root), chosen, **plan.get("execution", {}))
    ended = {"metrics": result.metrics, "rows": result.rows, "tokens": result.tokens, "now": result.steps_now}
    ended |= {"skipped": result.skipped, **counted}
    if result.first_rank:
        save_file(snapshot(task.module), out)
        write_json(out + ".json", ended)
    else:
        write_json(f"{out}.{os.environ['LOCAL_RANK']}.json", ended)


@contextmanager
def _work_counted(module: Any, plan: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """How often a plan with `counted` computes a block in order to learn; how many graphs one with `compile` has."""
    counted: dict[str, int] = {}
    if plan.get("execution", {}).get("compile"):
        from torch._dynamo.utils import counters

        before = counters["stats"]["unique_graphs"]
        yield counted
        counted["graphs"] = counters["stats"]["unique_graphs"] - before
    elif plan.get("counted"):
        kind = type(module.blocks[0])
        forward, counted["computed"] = kind.forward, 0

        def counting(*arguments: Any, **options: Any) -> Any:
            counted["computed"] += torch.is_grad_enabled()
            return forward(*arguments, **options)

        with mock.patch.object(kind, "forward", counting):
            yield counted
    else:
        yield counted


def _die_in_save(step: int) -> None:
    """kill -9 when a checkpoint is in place but not yet marked."""
    from lexmill.training import checkpoints

    write = checkpoints.write_json

    def dying(path: Path, value: Any) -> None:
        if path.name == "COMPLETE" and value["step"] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, value)

    checkpoints.write_json = dying  # type: ignore[assignment]


def _die_in_piece(step: int, rank: int, file: str) -> None:
    """kill -9 of one rank when it has written half of one file of a checkpoint, and all wait for the next one."""
    from lexmill.training import pieces

    write = pieces.write

    def dying(path: Path, named: Any) -> str:
        if path.name.startswith(file) and f"{step:08d}" in path.parent.name and os.environ["LOCAL_RANK"] == str(rank):
            write(path, named)
            time.sleep(0.5)
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return write(path, named)

    pieces.write = dying


def script(root: str, out: str, plan: str) -> NoReturn:
    """`main` with the end of a stage: its message, its exit code."""
    from lexmill.stages.entry import outcome

    code, message = outcome(lambda: main(root, out, json.loads(plan)))
    print(message, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    script(*sys.argv[1:])
