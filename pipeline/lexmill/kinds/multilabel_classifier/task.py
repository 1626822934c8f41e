"""Training a multi-label classifier: nats of whether each label is given, summed over labels, one target per text.

Shape letters: B texts, T tokens, L labels.
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
from lexmill.data.texts import Batch, TextBatches, encode, of_record, parts, reading, records_of
from lexmill.kinds.multilabel_classifier import MultiLabelClassifier
from lexmill.kinds.multilabel_classifier.label_sets import Given, as_matrix, best_thresholds, known_labels, split_label
from lexmill.kinds.multilabel_classifier.predict import probabilities
from lexmill.params import Params
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, check_positions, config_of, metrics_of, new_network, produce
from lexmill.training.task import Arrays, Task

VALID_BATCH = 64  # texts per validation batch; results do not depend on it


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`.

    Raises:
        UserError: no text of train has a label, a split is empty, or a checkpoint does not fit.
    """
    model = choices.models[name]
    assert isinstance(model, MultiLabelClassifier)
    data, recipe, corpus = model.data, model.recipe, PreparedCorpus(layout.corpus(model.data.corpus))
    labels = known_labels(corpus.labels, data.separator, data.no_labels)
    if not labels:
        raise UserError("no text has a label; there is nothing to learn", corpus.folder)
    tokenizer = tokenizers.load(layout.tokenizer(data.tokenizer))
    sides = {}
    for split, size in (("train", recipe.batch), ("valid", max(recipe.batch, VALID_BATCH))):
        records = records_of(corpus, split)
        ids = encode(tokenizer, [of_record(record) for record in records], data.max_tokens)
        sets = [split_label(record["label"], data.separator, data.no_labels) for record in records]
        sides[split] = (TextBatches(ids, size, choices.data_seed, 0), as_matrix(sets, labels))
    config = config_of(
        model,
        tokenizer,
        tokenizer.vocab_size,
        labels=labels,
        dropout=recipe.head_dropout,
        separators=[data.separator, data.no_labels],
        **reading(corpus, tokenizer, data.max_tokens),
    )
    module: Any = new_network(model, config, choices.training_seed)
    check_positions(name, data.max_tokens, module.max_positions)
    task = MultiLabelTask(module, sides["train"], sides["valid"])

    def choose() -> None:
        module.eval()
        batches, right = sides["valid"]
        tuned = recipe.thresholds == "tuned"
        chances = probabilities(module, batches.ids, VALID_BATCH * data.max_tokens)
        config["thresholds"] = best_thresholds(chances, right).tolist() if tuned else [0.5] * len(labels)

    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.train[0].steps_per_epoch,
            metrics=lambda result: metrics(result, task),
            speed=speed,
            finish=choose,
        ),
        choices,
    )


def metrics(result: FitResult, task: MultiLabelTask) -> dict[str, float]:
    """Return the stage's metrics: losses in nats per text, counts, no times."""
    return {**metrics_of(result, task), "train_texts": len(task.train[1])}


def speed(result: FitResult) -> tuple[dict[str, float], str]:
    """Return texts per second, as a metric and as a sentence."""
    words = f"valid loss {result.metrics['valid_loss']:.3f}, {result.rate:,.0f} texts/s"
    return {"texts_per_second": result.rate}, words


class MultiLabelTask(Task):
    """Texts to sets of labels.

    Args:
        module: `forward(tokens (B, T), mask (B, T)) -> logits (B, L)`.
        train, valid: the batches of each split, and which labels its texts have, (N, L).
    """

    counted = "texts"

    def __init__(self, module: nn.Module, train: tuple[TextBatches, Given], valid: tuple[TextBatches, Given]) -> None:
        self.module, self.train, self.valid = module, train, valid

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return _arrays(self.train[0].rows(step, rank, world), self.train[1])

    def parts(self, batch: Arrays, pass_cost: int) -> list[Arrays]:
        # Labels have two axes too, but no time: they wait outside while the others are cut.
        rows = np.arange(len(batch["mask"]))
        cut = parts({"tokens": batch["tokens"], "mask": batch["mask"], "rows": rows}, pass_cost)
        return [{"tokens": one["tokens"], "mask": one["mask"], "labels": batch["labels"][one["rows"]]} for one in cut]

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        logits = module(batch["tokens"], batch["mask"]).float()  # (B, L)
        return functional.binary_cross_entropy_with_logits(logits, batch["labels"], reduction="sum"), len(logits)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        batches, right = self.valid
        return (_arrays(batch, right) for batch in islice(batches.evaluation_batches(), rank, None, world))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        logits = module(batch["tokens"], batch["mask"]).float()  # (B, L)
        nats = functional.binary_cross_entropy_with_logits(logits, batch["labels"], reduction="sum")
        found, right = logits > 0, batch["labels"] > 0
        counts = [(found & right).sum(), found.sum() + right.sum(), torch.tensor(len(logits)).to(nats.device)]
        return torch.stack([nats.double(), *(count.double() for count in counts)])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, hits, both, texts = sums
        micro_f1 = 2 * hits / both if both else 0.0  # from a probability of 0.5 on
        return {"valid_loss": nats / texts, "valid_micro_f1": micro_f1, "valid_texts": texts}

    def epochs(self, step: int) -> float:
        return self.train[0].epoch(step)


def _arrays(batch: Batch, right: Given) -> Arrays:
    return {"tokens": batch.tokens, "mask": batch.mask, "labels": right[batch.index].astype(np.float32)}
