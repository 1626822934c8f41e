"""The task of a text classifier: nats of the right label, one target a text.

Shape letters: B texts, T tokens, L labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill.data.classification import Batch, ClassificationBatches
from lexmill.training.task import Arrays, Task


class ClassificationTask(Task):
    """Texts to labels.

    The best weights are those of the lowest valid loss: it is steadier than accuracy, which on a few hundred texts
    moves by more than a point from chance alone.

    Args:
        module: `forward(tokens (B, T), mask (B, T)) -> logits (B, L)`, with its initial weights.
        train, valid: the batches of both splits.
    """

    counted = "texts"

    def __init__(self, module: nn.Module, train: ClassificationBatches, valid: ClassificationBatches) -> None:
        self.module, self.train, self.valid = module, train, valid

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return _arrays(self.train.rows(step, rank, world))

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        logits = module(batch["tokens"], batch["mask"]).float()  # (B, L)
        return functional.cross_entropy(logits, batch["labels"], reduction="sum"), len(logits)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        for number, batch in enumerate(self.valid.evaluation_batches()):
            if number % world == rank:
                yield _arrays(batch)

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        logits = module(batch["tokens"], batch["mask"]).float()  # (B, L)
        nats = functional.cross_entropy(logits, batch["labels"], reduction="sum")
        right = (logits.argmax(dim=1) == batch["labels"]).sum()
        return torch.stack([nats.double(), right.double(), torch.tensor(float(len(logits))).to(nats).double()])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, right, texts = sums
        return {"valid_loss": nats / texts, "valid_accuracy": right / texts, "valid_texts": texts}

    def epochs(self, step: int) -> float:
        return self.train.epoch(step)


def _arrays(batch: Batch) -> Arrays:
    return {"tokens": batch.tokens, "mask": batch.mask, "labels": batch.labels}
