"""Training a regressor: half the squared error of a standardised number, or nats of whether it is above each level.

Shape letters: B texts, T tokens, K levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.texts import Batch, TextBatches, counted, of_record, parts, read, reading, records_of
from lexmill.decoding.whole_texts import by_text
from lexmill.kinds.regressor import Regressor
from lexmill.kinds.regressor.scale import levels_of, number_of
from lexmill.params import Params
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, check_positions, config_of, metrics_of, new_network, produce
from lexmill.training.task import Arrays, Task

VALID_BATCH = 64  # texts per validation batch; results do not depend on it


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`.

    Raises:
        UserError: a label is no number, all are equal, a split is empty, or a checkpoint does not fit.
    """
    model = choices.models[name]
    assert isinstance(model, Regressor)
    corpus = PreparedCorpus(layout.corpus(model.data.corpus))
    tokenizer = tokenizers.load(layout.tokenizer(model.data.tokenizer))
    levels = levels_of(corpus) if model.recipe.target == "level" else []
    how, sides = reading(corpus, tokenizer, model.data.max_tokens, model.data.windows), {}
    for split, size in (("train", model.recipe.batch), ("valid", max(model.recipe.batch, VALID_BATCH))):
        records = records_of(corpus, split)
        texts = read(tokenizer, [of_record(record) for record in records], how)
        numbers = np.array([number_of(record["label"], corpus) for record in records])
        # Padding is masked: any id does.
        sides[split] = (TextBatches(texts.rows, size, choices.data_seed, 0, texts.counts), numbers)
    numbers = sides["train"][1]
    if not numbers.std():
        raise UserError(f"all numbers of train are {numbers[0]:g}; there is nothing to learn", corpus.folder)
    config = config_of(
        model,
        tokenizer,
        tokenizer.vocab_size,
        labels=[f"above {level:g}" for level in levels[:-1]] or ["number"],
        dropout=model.recipe.head_dropout,
        levels=levels,
        target=model.recipe.target,
        **how,
        **({} if model.recipe.pooling == "mean" else {"pooling": model.recipe.pooling}),
    )
    module: Any = new_network(model, config, choices.training_seed)
    check_positions(name, model.data.max_tokens, module.max_positions)
    task = RegressionTask(module, sides["train"], sides["valid"], levels)
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.train[0].steps_per_epoch,
            metrics=lambda result: {**metrics_of(result, task), **counted(task.train[0], model.data.max_tokens)},
            speed=speed,
            finish=task.unscale,
        ),
        choices,
    )


def speed(result: FitResult) -> tuple[dict[str, float], str]:
    """Return texts per second, as a metric and as a sentence."""
    words = f"valid mean absolute error {result.metrics['valid_absolute_error']:.4g}, {result.rate:,.0f} texts/s"
    return {"texts_per_second": result.rate}, words


class RegressionTask(Task):
    """Texts to numbers.

    Args:
        module: `forward(tokens (B, T), mask (B, T))` returns (B, 1), or (B, K - 1) with levels.
        train, valid: the batches of each split, and its texts' numbers, (N,).
        levels: in order; empty: the number itself is learned, standardised by train's mean and deviation.
    """

    counted = "texts"

    def __init__(
        self,
        module: nn.Module,
        train: tuple[TextBatches, np.ndarray],
        valid: tuple[TextBatches, np.ndarray],
        levels: Sequence[float],
    ) -> None:
        self.module, self.train, self.valid, self.levels = module, train, valid, tuple(levels)
        self.mean, self.deviation = float(train[1].mean()), float(train[1].std())

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        batches, numbers = self.train
        return _arrays(batches.rows(step, rank, world), numbers)

    def parts(self, batch: Arrays, pass_cost: int) -> list[Arrays]:
        return parts(batch, pass_cost)

    def _losses(self, outputs: Tensor, numbers: Tensor) -> Tensor:
        """Return the loss of each text, (B,)."""
        if not self.levels:
            return (outputs[:, 0] - (numbers.float() - self.mean) / self.deviation).square() / 2
        levels = torch.tensor(self.levels[:-1], dtype=numbers.dtype, device=numbers.device)
        above = (numbers[:, None] > levels).float()  # (B, K - 1)
        return functional.binary_cross_entropy_with_logits(outputs, above, reduction="none").sum(dim=1)

    def _numbers(self, outputs: Tensor) -> Tensor:
        """Return the number that each text gets, (B,) float64."""
        if not self.levels:
            return outputs[:, 0].double() * self.deviation + self.mean
        steps = torch.tensor(np.diff(self.levels), device=outputs.device)  # (K - 1,)
        return self.levels[0] + outputs.double().sigmoid() @ steps

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        outputs = module(batch["tokens"], batch["mask"]).float()
        return self._losses(outputs, batch["numbers"]).sum(), len(outputs)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        batches, numbers = self.valid
        for batch in islice(batches.evaluation_batches(), rank, None, world):
            yield _arrays(batch, numbers)

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        outputs, first = by_text(module(batch["tokens"], batch["mask"]).float(), batch["texts"])
        numbers = batch["numbers"][first]
        losses, errors = self._losses(outputs, numbers), (self._numbers(outputs) - numbers).abs()
        return torch.stack([losses.double().sum(), errors.sum(), torch.ones_like(errors).sum()])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        loss, errors, texts = sums
        return {"valid_loss": loss / texts, "valid_absolute_error": errors / texts, "valid_texts": texts}

    def epochs(self, step: int) -> float:
        return self.train[0].epoch(step)

    @torch.no_grad()
    def unscale(self) -> None:
        """Fold the mean and deviation of train into the head, which then gives the number itself."""
        if not self.levels:
            head: Any = self.module.head
            head.weight.mul_(self.deviation)
            head.bias.mul_(self.deviation).add_(self.mean)


def _arrays(batch: Batch, numbers: np.ndarray) -> Arrays:
    return {"tokens": batch.tokens, "mask": batch.mask, "numbers": numbers[batch.index], "texts": batch.index}
