"""The parts of a training: network, batches, loss, validation.

A task knows nothing of Lightning, devices or ranks beyond "which share of the rows". Losses are (sum, count) pairs,
added up over micro-batches and ranks and divided once, so the result does not depend on how a batch is cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

# What a pass through the network costs beside its tokens, in tokens: measured on MiniLM with one thread of a CPU
# (docs/experiments.md); elsewhere an estimate, as a GPU is idle for most of a small pass.
_PASS_COST = {"cpu": 32}
_PASS_COST_ELSEWHERE = 4096
_NO_CUT = 2**40

Arrays = Mapping[str, np.ndarray]
"""A batch: arrays whose first axis is the row (sequence); the second, if any, is time."""


class Pace(NamedTuple):
    """How a parameter learns beside the others: its share of the learning rate, and the steps before it begins."""

    rate: float = 1.0
    begins: int = 0


class Task(ABC):
    """One training; each kind of model has a subclass.

    Attributes:
        module: the network to train, on the CPU, with its initial weights.
        metric: the name in `validation_metrics` that decides which weights are best.
        higher_is_better: whether more of it is better.
        counted: what the loss's targets are, for the speed: "tokens", "texts", "pairs".
        pace: how a parameter learns, by its name in the module.
    """

    module: nn.Module
    metric: str = "valid_loss"
    higher_is_better: bool = False
    counted: str = "tokens"
    pace: Callable[[str], Pace] = staticmethod(lambda _: Pace())

    @abstractmethod
    def batch(self, step: int, rank: int, world: int) -> Arrays:
        """Return this rank's rows of the global batch of optimizer step `step` (from 0).

        A pure function of its arguments and the data seed. The shares of all ranks make up the batch, each row once;
        a share may be empty (arrays with 0 rows).
        """

    def parts(self, batch: Arrays, pass_cost: int) -> list[Arrays]:
        """Return a training batch as the parts that go through the network one after another, each row once.

        Rows of unequal lengths need less padding in parts of like length. Without rows there may be no parts.

        Args:
            batch: what `batch(...)` returned.
            pass_cost: what a pass costs beside its tokens, in tokens.
        """
        return [batch]

    @abstractmethod
    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        """Return (the objective summed over the targets of these rows, the number of targets).

        `batch` holds some of `batch(...)`'s rows as tensors on the module's device. The sum is a float32 scalar (cast
        the logits, also under bf16).
        """

    @abstractmethod
    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        """Return this rank's share of the whole validation split; it may be empty."""

    @abstractmethod
    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        """Return a fixed number of sums, added up over all batches and ranks in float64: nats, targets ..."""

    @abstractmethod
    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        """Return the metrics of the whole split from the sums; has `valid_loss` and `self.metric`."""

    def carried(self) -> Mapping[str, Tensor]:
        """Return what the next step takes over from this one besides weights; a part of each checkpoint."""
        return {}

    def carry(self, carried: Mapping[str, Tensor]) -> None:
        """Restore what `carried` returned."""
        assert not carried, "this task takes nothing over"

    @abstractmethod
    def epochs(self, step: int) -> float:
        """Return the passes over train after `step` optimizer steps, for the curve."""


def tensors(arrays: Arrays, device: torch.device) -> dict[str, Tensor]:
    """Return the arrays as tensors on the device."""
    import torch

    return {name: torch.as_tensor(array).to(device, non_blocking=True) for name, array in arrays.items()}


def count_rows(arrays: Arrays) -> int:
    """Return the number of rows of a batch; all arrays must have the same."""
    rows = {name: len(array) for name, array in arrays.items()}
    if len(set(rows.values())) != 1:
        raise ValueError(f"the arrays of a batch have different numbers of rows: {rows}")
    return next(iter(rows.values()))


def row_width(arrays: Arrays) -> int:
    """Return the positions in a row: those of the widest array."""
    return max(array.shape[1] if array.ndim > 1 else 1 for array in arrays.values())


def pass_cost(device_type: str, network: nn.Module) -> int:
    """Return what a pass through a network costs on such a device beside its tokens, in tokens.

    Where padding costs the network nothing, it is more than any cut could save.
    """
    if device_type == "cpu" and any(getattr(part, "unpads", False) for part in network.modules()):
        return _NO_CUT
    return _PASS_COST.get(device_type, _PASS_COST_ELSEWHERE)


def micro_batches(arrays: Arrays, tokens: int) -> list[Arrays]:
    """Cut a batch along its rows into parts of at most `tokens` positions (at least one row each).

    0 tokens: no cut. A batch without rows gives no parts.
    """
    rows = count_rows(arrays)
    if rows == 0:
        return []
    if tokens == 0:
        return [arrays]
    size = max(1, tokens // max(1, row_width(arrays)))
    return [{name: a[i : i + size] for name, a in arrays.items()} for i in range(0, rows, size)]
