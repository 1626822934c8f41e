"""Validation: sum over all batches and ranks, divide once.

Ranks go from batch to batch in lockstep. So no rank waits for one with fewer batches, all ranks react to a stop signal
within a batch, and under a sharded strategy, where a forward pass is an exchange, all make the same number of passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.training.ranks import Ranks
from lexmill.training.task import Arrays, Task, tensors


class StoppedInValidation(Exception):
    """A stop signal arrived during validation; no result of it was recorded."""


@torch.no_grad()
def validate(
    task: Task, module: nn.Module, ranks: Ranks, *, exchanging: bool, stopped: Callable[[], int]
) -> dict[str, float]:
    """Return the metrics of the module's present weights on the whole validation split.

    Args:
        exchanging: a forward pass is an exchange between ranks, so a rank without batches computes empty ones.
        stopped: returns the stop signal this process got, or 0.

    Raises:
        StoppedInValidation: after a signal to any rank.
        UserError: no rank has a batch.
    """
    sums: Tensor | None = None
    last: Arrays | None = None
    module.eval()
    try:
        for rows in _rounds(task.validation_batches(ranks.data_rank, ranks.data_world), ranks, stopped):
            if rows is None and not exchanging:
                continue
            last = rows if rows is not None else last if last is not None else blank(task, ranks)
            one = task.validation_sums(module, tensors(last, ranks.device))
            if rows is not None:
                one = torch.as_tensor(one).to("cpu", torch.float64)
                sums = one if sums is None else sums + one
    finally:
        module.train()
    return task.validation_metrics(_over_ranks(sums, ranks))


def _rounds(batches: Iterable[Arrays], ranks: Ranks, stopped: Callable[[], int]) -> Iterator[Arrays | None]:
    """Yield the batches of this rank, then None while another rank has one."""
    waiting = iter(batches)
    while True:
        rows = next(waiting, None)
        there, signals = ranks.summed([float(rows is not None), float(stopped() > 0)])
        if signals:
            raise StoppedInValidation
        if not there:
            return
        yield rows


def blank(task: Task, ranks: Ranks) -> Arrays:
    """Return one row of zeros in the form of a training batch, for a rank without rows."""
    rows = task.batch(0, ranks.data_rank, ranks.data_world)
    return {name: np.zeros((1, *array.shape[1:]), array.dtype) for name, array in rows.items()}


def _over_ranks(sums: Tensor | None, ranks: Ranks) -> list[float]:
    """Return the sums over ranks; a rank without a batch does not know their number."""
    length = ranks.largest(0 if sums is None else len(sums))
    if length == 0:
        raise UserError("the valid split is empty; give splits.valid a larger share")
    if sums is None or ranks.tensor_rank:  # of the ranks with the same rows, one counts
        return ranks.summed([0.0] * length)
    return ranks.summed(sums.tolist())
