"""One network trained on next tokens and on masked ones (GPT-BERT, Charpentier and Samuel 2024).

In a masked window each token sees the whole window, and a masked token is predicted at the position before it: both
objectives predict the token after a position. A masked window counts as many targets as another one, so the two losses
are weighted by their windows: a masked window's nats are its mean over the masked tokens, times T.

Shape letters: B windows, T context.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lexmill.data.masking import Plan, mask
from lexmill.data.permutation import fold
from lexmill.data.windows import Ids, positions
from lexmill.kinds.language_model.next_token import LanguageModelTask
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.training.task import Arrays


class HybridTask(LanguageModelTask):
    """Nats per target of both objectives; validation has each apart, and decides by next tokens.

    Args:
        module: also has `masked_loss((B, T), (B, T))`, the nats of each target, see `Decoder`.
        plan: how a window is masked.
        masked_windows: the share of the windows of a batch that are masked, the first ones; at least one of each.
        options: see `LanguageModelTask`.
    """

    def __init__(
        self, module: nn.Module, train: Any, valid: Any, *, plan: Plan, masked_windows: float, **options: Any
    ) -> None:
        super().__init__(module, train, valid, **options)
        self.plan, self.seed = plan, options["data_seed"]
        self.masked = min(max(1, round(masked_windows * self.batches.size)), self.batches.size - 1)

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        inputs, targets = self.batches.rows(step, rank, world)
        place = positions(step, self.batches.size, rank, world)
        masked = place - step * self.batches.size < self.masked
        for row in np.flatnonzero(masked):
            inputs[row], targets[row] = self._masked(inputs[row], targets[row], "masks", int(place[row]))
        return {"inputs": inputs, "targets": targets, "masked": masked}

    def _masked(self, inputs: Ids, targets: Ids, *name: str | int) -> tuple[Ids, Ids]:
        """Return a window with masked tokens, and its targets: the masked ones, at the positions before them."""
        read, chosen = mask(inputs[1:], self.plan, np.random.default_rng(fold(self.seed, *name)))
        found = np.full_like(targets, IGNORED)
        found[:-1][chosen] = inputs[1:][chosen]
        return np.concatenate([inputs[:1], read]), found

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        inputs, targets, masked = batch["inputs"], batch["targets"], batch["masked"]
        next_tokens = {"inputs": inputs[~masked], "targets": targets[~masked]}
        total = (
            self._nats(module, next_tokens) if len(next_tokens["inputs"]) else inputs.new_zeros((), dtype=torch.float)
        )
        if bool(masked.any()):
            nats = _masked_nats(module, inputs[masked], targets[masked])  # (b, T)
            means = nats.sum(1) / (targets[masked] != IGNORED).sum(1).clamp(min=1)
            total = total + means.sum() * targets.shape[1]
        return total, targets.numel()

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        for i, batch in enumerate(super().validation_batches(rank, world)):
            inputs, targets = np.copy(batch["inputs"]), np.full_like(batch["targets"], IGNORED)
            for row in np.flatnonzero((batch["targets"] != IGNORED).all(1)):  # the last one may be padded: left out
                place = (rank + i * world, int(row))
                inputs[row], targets[row] = self._masked(inputs[row], targets[row], "validation masks", *place)
            yield {**batch, "masked_inputs": inputs, "masked_targets": targets}

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        sums = torch.as_tensor(super().validation_sums(module, batch))
        nats = _masked_nats(module, batch["masked_inputs"], batch["masked_targets"])
        count = (batch["masked_targets"] != IGNORED).sum().double()
        return torch.cat([sums, torch.stack([nats.double().sum(), count])])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, targets, masked_nats, masked = sums
        return {"valid_loss": nats / targets, "valid_masked_loss": masked_nats / max(masked, 1)}


def _masked_nats(module: Any, inputs: Tensor, targets: Tensor) -> Tensor:
    nats: Tensor = module.masked_loss(inputs, targets)
    return nats
