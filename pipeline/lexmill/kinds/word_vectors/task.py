"""Training word vectors: on pairs of the running text or on the cells of a table of counts, as the network asks.

Shape letters: P pairs or cells, K negatives.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.data.mixture import verify_once
from lexmill.data.permutation import fold, permute
from lexmill.data.shards import TokenShards
from lexmill.kinds.word_vectors import WordVectors
from lexmill.kinds.word_vectors.cells import Cells, cooccurrences
from lexmill.kinds.word_vectors.pairs import EpochPairs, Ids, KnownTokens, Negatives, generator, keep_probabilities
from lexmill.params import Params
from lexmill.tokenizers import Tokenizer
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, config_of, new_network, produce
from lexmill.training.task import Arrays, Task

_VALID_ROWS = 1 << 16  # of a validation batch; results do not depend on it


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`.

    Raises:
        UserError: the shards were made with another tokenizer, or a split holds no pair of known tokens.
    """
    model = choices.models[name]
    assert isinstance(model, WordVectors)
    shards = layout.tokens(model.data.corpus, model.data.tokenizer)
    splits = [TokenShards(shards, split) for split in ("train", "valid")]
    folder = layout.tokenizer(model.data.tokenizer)
    tokenizer = tokenizers.load(folder)
    if tokenizer.fingerprint != splits[0].tokenizer_fingerprint:
        raise UserError(f"the shards were made with another tokenizer than {folder}; run encode again", shards)
    verify_once(*splits)
    config = config_of(model, tokenizer, splits[0].vocab_size)
    module: Any = new_network(model, config, choices.training_seed)
    text, valid = (_known(one, tokenizer) for one in splits)
    kind = {"pairs": PairsTask, "cells": CellsTask}[module.learns_from]
    task: _StaticTask = kind(module, text, valid, model.shape, batch=model.recipe.batch, seed=choices.data_seed)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.steps_per_epoch,
            metrics=lambda result: metrics(result, task.epochs(result.step), parameters),
            speed=speed,
        ),
        choices,
    )


def _known(shards: TokenShards, tokenizer: Tokenizer) -> KnownTokens:
    found = KnownTokens(np.asarray(shards.tokens[:]), np.diff(shards.offsets), tokenizer)
    if not found.has_pairs:
        raise UserError(
            f"no document of the {shards.split} split has two tokens that its tokenizer knows, so there is no pair to"
            " learn from",
            shards.folder,
        )
    return found


def metrics(result: FitResult, epochs: float, parameters: int) -> dict[str, float]:
    """Return the stage's metrics: losses a pair, counts, no times."""
    return {
        "train_loss": result.train_loss,
        "valid_loss": result.metrics["valid_loss"],
        "best_step": result.best_step,
        "steps": result.step,
        "pairs": result.tokens,
        "epochs": epochs,
        "parameters": parameters,
    }


def speed(result: FitResult) -> tuple[dict[str, float], str]:
    """Return pairs per second, as a metric and as a sentence."""
    words = f"valid loss {result.metrics['valid_loss']:.3f}, {result.rate:,.0f} pairs/s"
    return {"pairs_per_second": result.rate}, words


class _StaticTask(Task):
    """What both tasks share: a batch is so many items of an endless order, and the loss their sum.

    Attributes:
        steps_per_epoch: optimizer steps in one pass over train.
        validation_size: rows of the validation split.
    """

    counted = "pairs"
    steps_per_epoch: int
    validation_size: int

    def __init__(self, module: nn.Module, batch: int, seed: int) -> None:
        self.module, self.size, self.seed = module, batch, seed

    @abstractmethod
    def validation_rows(self, numbers: Ids) -> Arrays:
        """Return the rows of the validation split with these consecutive numbers, (P,)."""

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        return module(**batch), len(next(iter(batch.values())))

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        for start in range(rank * _VALID_ROWS, self.validation_size, world * _VALID_ROWS):
            yield self.validation_rows(np.arange(start, min(start + _VALID_ROWS, self.validation_size)))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        loss, count = self.loss_sum(module, batch)
        return torch.stack([loss.double(), torch.tensor(float(count)).to(loss).double()])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        return {"valid_loss": sums[0] / sums[1]}

    def epochs(self, step: int) -> float:
        return step / self.steps_per_epoch


class PairsTask(_StaticTask):
    """Pairs with negatives, each pair of an epoch once, in a random order; nats a pair.

    Epochs have slightly different numbers of pairs, since what is left out is drawn anew. All have the number of steps
    of the first: of a longer one the last pairs of its order are not used, of a shorter one the first are used twice.

    Args:
        module: `forward(centres, contexts, negatives)`, with its initial weights.
        train, valid: the tokens of both splits.
        shape: the family's, with window, negatives and subsample.
        batch: pairs in a global batch.
        seed: the data seed.

    Raises:
        UserError: no pair of train or valid is left.
    """

    def __init__(
        self, module: nn.Module, train: KnownTokens, valid: KnownTokens, shape: Any, *, batch: int, seed: int
    ) -> None:
        super().__init__(module, batch, seed)
        self._negatives, self._drawn = Negatives(train.counts), shape.negatives
        keep = keep_probabilities(train.counts, shape.subsample)

        @lru_cache(maxsize=1)  # of the present epoch: a pure function of it
        def epoch(number: int) -> EpochPairs:
            return _some(EpochPairs(train, keep, shape.window, generator(seed, "pairs", number)), "train")

        self._epoch = epoch
        self.steps_per_epoch = max(1, round(len(epoch(0)) / batch))
        self._valid = _some(EpochPairs(valid, keep, shape.window, generator(seed, "valid")), "valid")
        self.validation_size = len(self._valid)

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        number, place = divmod(step, self.steps_per_epoch)
        pairs = self._epoch(number)
        order = (place * self.size + np.arange(self.size)[rank::world]) % len(pairs)
        drawn = self._negatives.draw(generator(self.seed, "negatives", step), (self.size, self._drawn))
        return self._arrays(pairs, permute(order, len(pairs), fold(self.seed, "order", number)), drawn[rank::world])

    def validation_rows(self, numbers: Ids) -> Arrays:
        random = generator(self.seed, "negatives of valid", int(numbers[0]))
        drawn = self._negatives.draw(random, (len(numbers), self._drawn))
        return self._arrays(self._valid, numbers, drawn)

    @staticmethod
    def _arrays(pairs: EpochPairs, numbers: Ids, negatives: Ids) -> Arrays:
        centres, contexts = pairs.at(numbers)
        return {"centres": centres, "contexts": contexts, "negatives": negatives}


def _some(pairs: EpochPairs, split: str) -> EpochPairs:
    if not len(pairs):
        raise UserError(f"shape.subsample leaves no pair of the {split} split; raise it")
    return pairs


class CellsTask(_StaticTask):
    """The cells of the table of counts, each once an epoch, in a random order; weighted squares a cell.

    For validation the counts of the valid split are multiplied by the ratio of the splits' sums, since a smaller text
    has smaller counts. They are noisier than those of train, so their loss stays above that of train.

    Args:
        module: `forward(rows, columns, counts)`, with its initial weights.
        train, valid: the tokens of both splits.
        shape: the family's, with window.
        batch: cells in a global batch.
        seed: the data seed.
    """

    def __init__(
        self, module: nn.Module, train: KnownTokens, valid: KnownTokens, shape: Any, *, batch: int, seed: int
    ) -> None:
        super().__init__(module, batch, seed)
        self._cells, self._valid = (cooccurrences(text, shape.window) for text in (train, valid))
        self._ratio = self._cells.counts.sum() / self._valid.counts.sum()
        self.steps_per_epoch = -(-len(self._cells.counts) // batch)
        self.validation_size = len(self._valid.counts)

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        cells = len(self._cells.counts)
        position = step * self.size + np.arange(self.size)[rank::world]
        epochs = position // cells
        numbers = np.empty_like(position)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            numbers[here] = permute(position[here] % cells, cells, fold(self.seed, "cells", int(epoch)))
        return self._arrays(self._cells, numbers, 1.0)

    def validation_rows(self, numbers: Ids) -> Arrays:
        return self._arrays(self._valid, numbers, self._ratio)

    @staticmethod
    def _arrays(cells: Cells, numbers: Ids, ratio: float) -> Arrays:
        counts = (cells.counts[numbers] * ratio).astype(np.float32)
        return {"rows": cells.rows[numbers], "columns": cells.columns[numbers], "counts": counts}
