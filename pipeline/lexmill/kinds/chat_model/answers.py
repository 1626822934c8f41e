"""The task of supervised tuning: predict the tokens of the answers of packed conversations.

Shape letters: B windows, T context.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.data.conversations import IGNORED, ConversationBatches, Windows
from lexmill.training.task import Arrays, Task

_VALID_TOKENS = 4096


class AnswerTask(Task):
    """Nats per token of the answers, their end tokens included.

    Args:
        module: `loss((B, T) int64, (B, T) int64, documents)` returns the summed nats.
        batches: of the train split.
        valid: the packed valid split.

    Raises:
        UserError: the valid split has no answers.
    """

    def __init__(self, module: nn.Module, batches: ConversationBatches, valid: Windows) -> None:
        if not len(valid.inputs):
            raise UserError("the valid split has no answers; give splits.valid a larger share")
        self.module, self.batches, self.valid = module, batches, valid
        self.steps_per_epoch = batches.steps_per_epoch

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return self.batches.rows(step, rank, world)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        return self._nats(module, batch), (batch["targets"] != IGNORED).sum()

    @staticmethod
    def _nats(module: Any, batch: Mapping[str, Tensor]) -> Tensor:
        nats: Tensor = module.loss(batch["inputs"], batch["targets"], batch["documents"])
        return nats

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        count, context = self.valid.inputs.shape
        size = max(1, _VALID_TOKENS // context)
        for start in range(rank * size, count, world * size):
            yield self.valid.rows(np.arange(start, min(start + size, count)))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        return torch.stack([self._nats(module, batch).double(), (batch["targets"] != IGNORED).sum().double()])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, targets = sums
        return {"valid_loss": nats / targets}

    def epochs(self, step: int) -> float:
        return self.batches.epoch(step)
