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
from lexmill.corpora.prepared import PreparedCorpus, labels_of
from lexmill.data.texts import Batch, Read, TextBatches, counted, of_record, parts, read, reading, records_of
from lexmill.decoding.whole_texts import by_text
from lexmill.kinds.multilabel_classifier import MultiLabelClassifier
from lexmill.kinds.multilabel_classifier.label_sets import Given, as_matrix, best_thresholds
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
    labels = sorted({label for labels in corpus.labels for label in labels_of(labels)})
    if not labels:
        raise UserError("no text has a label; there is nothing to learn", corpus.folder)
    tokenizer = tokenizers.load(layout.tokenizer(data.tokenizer))
    how = reading(corpus, tokenizer, data.max_tokens, data.windows)
    sides, texts = {}, dict[str, Read]()
    for split, size in (("train", recipe.batch), ("valid", max(recipe.batch, VALID_BATCH))):
        records = records_of(corpus, split)
        texts[split] = read(tokenizer, [of_record(record) for record in records], how)
        sets = [labels_of(record["label"]) for record in records]
        batches = TextBatches(texts[split].rows, size, choices.data_seed, 0, texts[split].counts)
        sides[split] = (batches, as_matrix(sets, labels))
    config = config_of(
        model,
        tokenizer,
        tokenizer.vocab_size,
        labels=labels,
        dropout=recipe.head_dropout,
        **how,
    )
    module: Any = new_network(model, config, choices.training_seed)
    check_positions(name, data.max_tokens, module.max_positions)
    task = MultiLabelTask(module, sides["train"], sides["valid"])

    def choose() -> None:
        module.eval()
        tuned = recipe.thresholds == "tuned"
        chances = probabilities(module, texts["valid"], VALID_BATCH * data.max_tokens)
        config["thresholds"] = best_thresholds(chances, sides["valid"][1]).tolist() if tuned else [0.5] * len(labels)

    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.train[0].steps_per_epoch,
            metrics=lambda result: metrics(result, task, data.max_tokens),
            speed=speed,
            finish=choose,
        ),
        choices,
    )


def metrics(result: FitResult, task: MultiLabelTask, max_tokens: int) -> dict[str, float]:
    """Return the stage's metrics: losses in nats per text, counts, no times."""
    return {**metrics_of(result, task), **counted(task.train[0], max_tokens)}


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
        cut = parts({name: array for name, array in batch.items() if name != "labels"} | {"rows": rows}, pass_cost)
        return [
            {name: array for name, array in one.items() if name != "rows"} | {"labels": batch["labels"][one["rows"]]}
            for one in cut
        ]

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        logits = module(batch["tokens"], batch["mask"]).float()  # (B, L)
        return functional.binary_cross_entropy_with_logits(logits, batch["labels"], reduction="sum"), len(logits)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        batches, right = self.valid
        return (_arrays(batch, right) for batch in islice(batches.evaluation_batches(), rank, None, world))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        logits, first = by_text(module(batch["tokens"], batch["mask"]).float(), batch["texts"])  # (texts, L)
        labels = batch["labels"][first]
        nats = functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        found, right = logits > 0, labels > 0
        counts = [(found & right).sum(), found.sum() + right.sum(), torch.tensor(len(logits)).to(nats.device)]
        return torch.stack([nats.double(), *(count.double() for count in counts)])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, hits, both, texts = sums
        micro_f1 = 2 * hits / both if both else 0.0  # from a probability of 0.5 on
        return {"valid_loss": nats / texts, "valid_micro_f1": micro_f1, "valid_texts": texts}

    def epochs(self, step: int) -> float:
        return self.train[0].epoch(step)


def _arrays(batch: Batch, right: Given) -> Arrays:
    labels = right[batch.index].astype(np.float32)
    return {"tokens": batch.tokens, "mask": batch.mask, "labels": labels, "texts": batch.index}
