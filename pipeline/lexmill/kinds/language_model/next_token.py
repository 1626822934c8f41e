"""The task of a causal language model: predict each next token of packed text.

Shape letters: B windows, T context.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.data.mixture import MixedShards, MixtureBatches, training_batches
from lexmill.data.shards import TokenShards
from lexmill.data.windows import evaluation_documents, evaluation_windows
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.training.task import Arrays, Task

_VALID_TOKENS = 4096


class LanguageModelTask(Task):
    """Nats per token, end tokens included.

    Args:
        module: `loss((B, T) int64, (B, T) int64, documents)` returns the summed nats.
        train, valid: the two splits; train may be a mixture.
        context: T.
        batch_tokens: targets in a global batch.
        data_seed: of the order of windows.
        mask_documents: a position sees only its target's document.

    Raises:
        UserError: train or valid is empty.
    """

    def __init__(
        self,
        module: nn.Module,
        train: TokenShards | MixedShards,
        valid: TokenShards,
        *,
        context: int,
        batch_tokens: int,
        data_seed: int,
        mask_documents: bool = False,
    ) -> None:
        if len(valid.tokens) == 0:
            raise UserError("the valid split holds no tokens; give splits.valid a larger share", valid.folder)
        self.module, self.valid, self.context, self.mask_documents = module, valid, context, mask_documents
        self.batches = training_batches(train, context, batch_tokens, data_seed)

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        inputs, targets = self.batches.rows(step, rank, world)
        batch = {"inputs": inputs, "targets": targets}
        if self.mask_documents:
            batch["documents"] = self.batches.documents(step, rank, world)
        return batch

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        return self._nats(module, batch), batch["targets"].numel()

    @staticmethod
    def _nats(module: Any, batch: Mapping[str, Tensor]) -> Tensor:
        nats: Tensor = module.loss(batch["inputs"], batch["targets"], batch.get("documents"))
        return nats

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        rows = max(1, _VALID_TOKENS // self.context)
        windows = evaluation_windows(self.valid, self.context, rows)
        documents = evaluation_documents(self.valid, self.context, rows) if self.mask_documents else repeat(None)
        every = zip(windows, documents, strict=False)
        for (inputs, targets, mask), numbers in islice(every, rank, None, world):
            targets[~mask] = IGNORED
            batch = {"inputs": inputs, "targets": targets}
            yield batch if numbers is None else {**batch, "documents": numbers}

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        return torch.stack([self._nats(module, batch).double(), (batch["targets"] != IGNORED).sum().double()])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, targets = sums
        return {"valid_loss": nats / targets}

    def epochs(self, step: int) -> float:
        return self.batches.epoch(step)

    def member_epochs(self, step: int) -> dict[str, float]:
        """Return `epochs_<corpus>`: passes over each member of a mixture after `step` steps; {} for a single corpus."""
        if not isinstance(self.batches, MixtureBatches):
            return {}
        return {f"epochs_{name}": epochs for name, epochs in self.batches.epochs(step).items()}
