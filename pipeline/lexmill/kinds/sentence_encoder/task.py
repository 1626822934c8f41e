"""Training a sentence encoder: nats of finding a text's partner among those of its batch, and back.

The loss is InfoNCE over the cosines of the batch (van den Oord et al. 2018), in both directions. All pairs of a process
and step are compared with each other, so they go through the network at once: they are one row of a batch, which
nothing cuts. With several processes each has the negatives of its own pairs.

Shape letters: B pairs, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.texts import Ids, TextBatches, encode, pad
from lexmill.kinds.sentence_encoder import SentenceEncoder
from lexmill.kinds.sentence_encoder.predict import vectors
from lexmill.kinds.sentence_encoder.retrieval import belongs, of_vectors, pairs_of, partner_ranks
from lexmill.params import Params
from lexmill.tokenizers import Tokenizer
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, check_positions, config_of, metrics_of, new_network, produce
from lexmill.training.task import Arrays, Task

_VALID_TOKENS = 4096  # in a pass over valid; ranks do not depend on it


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`.

    Raises:
        UserError: a corpus without second texts, a split without pairs that belong together, or a checkpoint that does
            not fit.
    """
    model = choices.models[name]
    assert isinstance(model, SentenceEncoder)
    data, corpus = model.data, PreparedCorpus(layout.corpus(model.data.corpus))
    tokenizer = tokenizers.load(layout.tokenizer(data.tokenizer))
    records = {
        split: [one for one in pairs_of(corpus, split) if belongs(one, data.positive)] for split in ("train", "valid")
    }
    for split, found in records.items():
        if len(found) < 2:
            raise UserError(f"{len(found)} pair(s) of {split} belong together; see data.positive", corpus.folder)
    config = config_of(
        model,
        tokenizer,
        tokenizer.vocab_size,
        embedding="mean",
        positive=data.positive,
        max_tokens=data.max_tokens,
    )
    module: Any = new_network(model, config, choices.training_seed)
    check_positions(name, data.max_tokens, module.max_positions)
    sides = {
        split: Pairs(found, tokenizer, data.max_tokens, model.recipe.batch, choices.data_seed)
        for split, found in records.items()
    }
    task = ContrastiveTask(module, sides["train"], sides["valid"], model.recipe.temperature)

    def found_at_1() -> float:
        """Return the share of valid's texts whose partner comes first."""
        module.eval()
        texts = ([one[side] for one in records["valid"]] for side in ("text", "second"))
        both = (vectors(module, tokenizer, some, data.max_tokens, _VALID_TOKENS) for some in texts)
        return float(np.mean(np.array(partner_ranks(records["valid"], of_vectors(*both))) == 1))

    at_1 = {"untrained_valid_accuracy_at_1": found_at_1()}
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.train.batches.steps_per_epoch,
            metrics=lambda result: {**metrics_of(result, task), **at_1, "train_pairs": len(task.train.batches.ids)},
            speed=speed,
            finish=lambda: at_1.update(valid_accuracy_at_1=found_at_1()),
        ),
        choices,
    )


def speed(result: FitResult) -> tuple[dict[str, float], str]:
    """Return pairs per second, as a metric and as a sentence."""
    words = f"valid loss {result.metrics['valid_loss']:.3f}, {result.rate:,.0f} pairs/s"
    return {"pairs_per_second": result.rate}, words


class Pairs:
    """Pairs of texts in the order of their batches.

    Args:
        records: {"text", "second"}.
        tokenizer, max_tokens: texts are encoded, and cut.
        batch, seed: pairs in a batch, and the data seed.
    """

    def __init__(
        self, records: Sequence[Mapping[str, str]], tokenizer: Tokenizer, max_tokens: int, batch: int, seed: int
    ) -> None:
        first, second = ([record[side] for record in records] for side in ("text", "second"))
        self.second = encode(tokenizer, second, max_tokens)
        self.batches = TextBatches(encode(tokenizer, first, max_tokens), batch, seed, 0)
        number: dict[str, int] = {}
        self.numbers: Ids = np.array(
            [[number.setdefault(text, len(number)) for text in side] for side in (first, second)]
        )  # (2, N): equal texts have one number

    def arrays(self, index: Ids) -> Arrays:
        """Return tokens and mask (1, 2 B, T), first texts before second ones, and the numbers of texts (1, 2, B)."""
        if not len(index):
            return {name: np.zeros((0, 1, 1), dtype=np.int64) for name in ("tokens", "mask", "texts")}
        tokens, mask = pad([*(self.batches.ids[i] for i in index), *(self.second[i] for i in index)])
        return {"tokens": tokens[None], "mask": mask[None], "texts": self.numbers[:, index][None]}


class ContrastiveTask(Task):
    """Nats per pair.

    Args:
        module: `module(tokens (B, T), mask (B, T))` returns vectors (B, D) of length 1.
        train, valid: the pairs of each split.
        temperature: of the softmax over cosines.
    """

    counted = "pairs"

    def __init__(self, module: nn.Module, train: Pairs, valid: Pairs, temperature: float) -> None:
        self.module, self.train, self.valid, self.temperature = module, train, valid, temperature

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return self.train.arrays(self.train.batches.rows(step, rank, world).index)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        logits = self._logits(module, batch)
        return info_nce(logits), len(logits)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        """The batches of the first epoch, whole: negatives are of the same batch on any number of ranks."""
        for step in range(rank, self.valid.batches.steps_per_epoch, world):
            yield self.valid.arrays(self.valid.batches.batch(step).index)

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        logits = self._logits(module, batch)
        right = (logits.argmax(dim=1) == torch.arange(len(logits), device=logits.device)).sum()
        return torch.stack([info_nce(logits).double(), right.double(), torch.ones_like(right).double() * len(logits)])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, right, pairs = sums
        return {"valid_loss": nats / pairs, "valid_in_batch_accuracy": right / pairs, "valid_pairs": pairs}

    def epochs(self, step: int) -> float:
        return self.train.batches.epoch(step)

    def _logits(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the logits of first texts (down) with second ones (across), (B, B).

        Between two pairs that share a text they are -inf: what belongs to one may belong to the other.
        """
        first, second = module(batch["tokens"][0], batch["mask"][0]).float().chunk(2)  # (B, D) each
        texts = batch["texts"][0]  # (2, B)
        shared = (texts[:, :, None] == texts[:, None, :]).any(dim=0)  # (B, B)
        crosswise = texts[0][:, None] == texts[1]
        shared |= crosswise | crosswise.t()
        shared.fill_diagonal_(False)
        return (first @ second.t() / self.temperature).masked_fill(shared, -torch.inf)


def info_nce(logits: Tensor) -> Tensor:
    """Return the mean of both directions' nats, summed over the pairs on the diagonal of (B, B)."""
    right = torch.arange(len(logits), device=logits.device)
    ways = (functional.cross_entropy(one, right, reduction="sum") for one in (logits, logits.t()))
    return sum(ways, logits.new_zeros(())) / 2
