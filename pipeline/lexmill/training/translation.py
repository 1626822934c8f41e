"""Training a translator: the smoothed loss of each target token, end token included; valid in plain nats.

The logits are made only where a target is, never at padding. Shape letters: B pairs, S source length, T target
length, N targets of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lexmill.data.parallel import Batch, ParallelBatches
from lexmill.training.task import Arrays, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lexmill.models.transformer.model import Transformer


class TranslationTask(Task):
    """Source to target.

    Args:
        module: the translator, with its initial weights.
        train, valid: the batches of both splits, valid's with room for its longest pair.
        label_smoothing: for training only.
    """

    module: Transformer

    def __init__(
        self, module: Transformer, train: ParallelBatches, valid: ParallelBatches, label_smoothing: float
    ) -> None:
        self.module, self.train, self.valid = module, train, valid
        self.label_smoothing = label_smoothing

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return _arrays(self.train.rows(step, rank, world))

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        return smoothed_sum(module, batch, self.label_smoothing)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        for number, batch in enumerate(self.valid.evaluation_batches()):
            if number % world == rank:
                yield _arrays(batch)

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        nats, targets = smoothed_sum(module, batch, 0.0)
        return [float(nats), float(targets)]

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, targets = sums
        loss = nats / targets
        return {"valid_loss": loss, "valid_perplexity": math.exp(min(loss, 700.0)), "valid_targets": targets}

    def epochs(self, step: int) -> float:
        return self.train.epoch(step)


def smoothed_sum(module: Any, batch: Mapping[str, Tensor], smoothing: float) -> tuple[Tensor, int]:
    """The summed loss of a batch's targets and their number.

    Args:
        module: a translator with `hidden`, whose output projection is its embedding.
        batch: source (B, S), source_mask, target_in (B, T), target_out, target_mask.
    """
    from lexmill.models.common.cross_entropy import fused_cross_entropy

    hidden = module.hidden(batch["source"], batch["source_mask"], batch["target_in"])  # (B, T, D)
    mask = batch["target_mask"]
    target = batch["target_out"][mask]  # (N,)
    return fused_cross_entropy(hidden[mask], module.embedding.weight, target, smoothing), len(target)


def _arrays(batch: Batch) -> Arrays:
    return {
        "source": batch.source,
        "source_mask": batch.source_mask,
        "target_in": batch.target_in,
        "target_out": batch.target_out,
        "target_mask": batch.target_mask,
    }
