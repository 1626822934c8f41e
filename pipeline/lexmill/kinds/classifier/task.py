"""Training a text classifier: nats of the right label, one target per text.

Shape letters: B texts, T tokens, L labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill import models, tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.permutation import fold, permute
from lexmill.data.texts import counted, of_record, parts, read, reading, records_of
from lexmill.decoding.whole_texts import by_text
from lexmill.kinds.classifier import (
    Classifier,
    FineTuning,
    NaiveBayes,
    NearestNeighbours,
    distillation,
    fitting,
    settling,
)
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.classifier.distillation import distillation_loss
from lexmill.kinds.classifier.losses import balanced_weights, label_loss
from lexmill.kinds.classifier.metrics import mean_f1
from lexmill.models import family
from lexmill.models.common.state import load_weights, weights
from lexmill.models.start import digest
from lexmill.params import Params
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.task_tokens import with_task_tokens
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, check_positions, config_of, metrics_of, new_network, produce
from lexmill.training.task import Arrays, Task

VALID_BATCH = 64  # texts per validation batch; results do not depend on it


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`: by gradient descent, or only its head, to the optimum.

    Raises:
        UserError: fewer than two labels in the corpus or in train, an empty split, or a checkpoint that does not fit.
    """
    model = choices.models[name]
    assert isinstance(model, Classifier)
    corpus = PreparedCorpus(layout.corpus(model.data.corpus))
    if len(corpus.labels) < 2:
        raise UserError(f"the corpus has {len(corpus.labels)} label(s); two or more are needed", corpus.folder)
    folder = layout.tokenizer(model.data.tokenizer)
    tokenizer = with_task_tokens(folder) if model.task_tokens else tokenizers.load(folder)
    how = reading(corpus, tokenizer, model.data.max_tokens, model.data.windows)
    batches = {
        split: _batches(corpus, split, tokenizer, model, seed=choices.data_seed, how=how)
        for split in ("train", "valid")
    }
    config = config_of(
        model,
        tokenizer,
        tokenizer.vocab_size,
        labels=list(corpus.labels),
        dropout=model.recipe.head_dropout if isinstance(model.recipe, FineTuning) else 0.0,
        **how,
        **_head(model, len(batches["train"])),
    )
    teacher = None
    if isinstance(model.recipe, FineTuning) and model.recipe.teacher:
        folder = layout.model(model.recipe.teacher)
        config["teacher"] = {"model": model.recipe.teacher, "sha256": digest(folder)}
        records = _records(corpus, "train", model, choices.data_seed)
        teacher = distillation.teacher_logits(folder, [of_record(record) for record in records], corpus.labels)
    module = _network(model, config, tokenizer, batches["train"].ids, choices.training_seed)
    check_positions(name, model.data.max_tokens, module.max_positions)
    recipe, settled = model.recipe, dict[str, float]()
    if len(np.unique(batches["train"].labels)) < 2:
        raise UserError("all texts of train have one label; there is nothing to learn", corpus.folder)
    task = ClassificationTask(
        module, batches["train"], batches["valid"], recipe if isinstance(recipe, FineTuning) else None, teacher
    )

    def finish() -> None:
        if isinstance(recipe, FineTuning):
            settled.update(settling.settle(module, task.valid, recipe, config, name))

    training = Training(
        name=name,
        model=model,
        config=config,
        task=task,
        steps_per_epoch=task.train.steps_per_epoch,
        metrics=lambda result: {**metrics(result, task, model.data.max_tokens), **settled},
        speed=speed,
        finish=finish,
    )
    if isinstance(recipe, FineTuning):
        produce(training, choices)
    elif isinstance(recipe, NearestNeighbours):
        fitting.store(training, task.train, task.valid, sizes(task, model.data.max_tokens))
    else:
        fitting.fit(training, task.train, task.valid, recipe, sizes(task, model.data.max_tokens))


def _head(model: Classifier, texts: int) -> dict[str, Any]:
    """Return what the config says of the head; the mean is left out, as in models made before there was a choice."""
    pooling = "none" if isinstance(model.recipe, NaiveBayes) else model.recipe.pooling
    found: dict[str, Any] = {} if pooling in ("mean", "none") else {"pooling": pooling}
    declared = family(model.family)
    known = declared.role == "causal" and bool(declared.model_types)
    if isinstance(model.recipe, FineTuning) and pooling == "last" and known:
        found["head_bias"] = False  # as in transformers, which could not read a bias
    if isinstance(model.recipe, NearestNeighbours):
        found |= {"neighbours": min(model.recipe.neighbours, texts), "train_texts": texts}
    return found


def _network(
    model: Classifier, config: dict[str, Any], tokenizer: Tokenizer, texts: Sequence[Sequence[int]], seed: int
) -> Any:
    """Return the network with its initial weights; a bag's features are the n-grams of train."""
    if family(model.family).role != "bag":
        return new_network(model, config, seed)
    bag: Any = models.build({key: config[key] for key in ("family", "shape", "vocab_size")})
    marks = tokenizer.unseen | ({tokenizer.unk_id} if tokenizer.unk_id is not None else set())
    config["shape"] = {**config["shape"], "n_feature": bag.learn(texts, frozenset(marks), _same_words(tokenizer))}
    module: Any = new_network(model, config, seed)
    load_weights(module.encoder, weights(bag))
    return module


def _same_words(tokenizer: Tokenizer) -> list[int]:
    """Return for each token the one that it counts as: of a word with and without the space before it, the former.

    Tokens that are parts of words count as themselves: a space before one is where its word begins.
    """
    numbers = range(tokenizer.vocab_size)
    if json.loads(tokenizer.backend.to_str())["model"]["type"] != "WordLevel":
        return list(numbers)
    texts = [tokenizer.decode([number], skip_special=False) for number in numbers]
    after_space = {text[1:]: number for number, text in enumerate(texts) if text.startswith(" ") and text[1:].strip()}
    return [after_space.get(text, number) for number, text in enumerate(texts)]


def _records(corpus: PreparedCorpus, split: str, model: Classifier, seed: int) -> list[dict[str, Any]]:
    """Return the records of a split; of train at most `max_train`, chosen by the data seed."""
    records, most = records_of(corpus, split), model.data.max_train
    if split != "train" or not 0 < most < len(records):
        return records
    places = permute(np.arange(most), len(records), fold(seed, "max_train"))
    return [records[i] for i in sorted(places.tolist())]


def _batches(
    corpus: PreparedCorpus, split: str, tokenizer: Tokenizer, model: Classifier, *, seed: int, how: Mapping[str, Any]
) -> ClassificationBatches:
    """Return the batches of a split."""
    records = _records(corpus, split, model, seed)
    # The optimum over all texts does not depend on batches: these are for speed.
    batch = model.recipe.batch if isinstance(model.recipe, FineTuning) else VALID_BATCH
    if split != "train":
        batch = max(batch, VALID_BATCH)
    number = {label: i for i, label in enumerate(corpus.labels)}
    texts = read(tokenizer, [of_record(record) for record in records], how)
    labels = [number[record["label"]] for record in records]
    balanced = split == "train" and isinstance(model.recipe, FineTuning) and model.recipe.sampling == "balanced"
    # Padding is masked: any id does.
    return ClassificationBatches(texts.rows, labels, batch, seed, 0, counts=texts.counts, balanced=balanced)


def metrics(result: FitResult, task: ClassificationTask, max_tokens: int) -> dict[str, float]:
    """Return the stage's metrics: losses in nats per text, counts, no times."""
    return {**metrics_of(result, task), **sizes(task, max_tokens)}


def sizes(task: ClassificationTask, max_tokens: int) -> dict[str, int]:
    """Return counts of texts and parameters, for the metrics."""
    return {
        **counted(task.train, max_tokens),
        "parameters": sum(parameter.numel() for parameter in task.module.parameters()),
    }


def speed(result: FitResult) -> tuple[dict[str, float], str]:
    """Return texts per second, as a metric and as a sentence."""
    accuracy, loss = 100 * result.metrics["valid_accuracy"], result.metrics["valid_loss"]
    words = f"valid accuracy {accuracy:.1f}, loss {loss:.3f}, {result.rate:.0f} texts/s"
    return {"texts_per_second": result.rate}, words


class ClassificationTask(Task):
    """Texts to labels.

    By default the best weights are those of the lowest validation loss: it is steadier than accuracy, which on a few
    hundred texts moves by more than a point by chance. It is of plain cross-entropy, whatever train minimises.

    Args:
        module: `forward(tokens (B, T), mask (B, T)) -> logits (B, L)`, with its initial weights.
        train, valid: the batches of both splits.
        recipe: the loss; None: cross-entropy.
        teacher: the logits of another classifier for the texts of train, (N, L); None: it learns from labels alone.
    """

    counted = "texts"

    def __init__(
        self,
        module: nn.Module,
        train: ClassificationBatches,
        valid: ClassificationBatches,
        recipe: FineTuning | None = None,
        teacher: Tensor | None = None,
    ) -> None:
        self.module, self.train, self.valid = module, train, valid
        self._smoothing, self._gamma, self._language = 0.0, 0.0, 0.0
        self._weights: Tensor | None = None
        self._teacher, self._teacher_weight, self._temperature = teacher, 0.0, 1.0
        if recipe is not None:
            self.metric = f"valid_{recipe.decided_by}"
            self.higher_is_better = recipe.decided_by != "loss"
            self._smoothing, self._gamma = recipe.label_smoothing, recipe.focal_gamma
            self._teacher_weight, self._temperature = recipe.teacher_weight, recipe.teacher_temperature
            self._language = recipe.language_loss
            if recipe.class_weights == "balanced":
                self._weights = balanced_weights(train.labels.tolist(), int(train.labels.max()) + 1)

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return self.train.arrays(self.train.rows(step, rank, world))

    def parts(self, batch: Arrays, pass_cost: int) -> list[Arrays]:
        return parts(batch, pass_cost)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        logits, nats = self._read(module, batch)  # (B, L), (B,)
        losses = label_loss(logits, batch["labels"], smoothing=self._smoothing, focal_gamma=self._gamma)  # (B,)
        if self._teacher is not None:
            self._teacher = self._teacher.to(losses.device)
            softened = distillation_loss(logits, self._teacher[batch["texts"]], self._temperature)
            losses = (1 - self._teacher_weight) * losses + self._teacher_weight * softened
        if nats is not None:
            losses = losses + self._language * nats
        if self._weights is None:
            return losses.sum(), len(logits)
        weights = self._weights.to(losses.device)[batch["labels"]]  # (B,)
        return (losses * weights).sum(), weights.sum()

    def _read(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Return logits (B, L) and, with a language loss, each text's nats a token (B,)."""
        if not self._language:
            return module(batch["tokens"], batch["mask"]).float(), None
        found = module(batch["tokens"], batch["mask"], True)  # (B, L + 1)
        return found[:, :-1], found[:, -1]

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        return map(self.valid.arrays, islice(self.valid.evaluation_batches(), rank, None, world))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        logits, of_tokens = self._read(module, batch)  # (B, L), (B,)
        logits, first = by_text(logits, batch["texts"])  # (texts, L)
        labels = batch["labels"][first]
        nats = functional.cross_entropy(logits, labels, reduction="sum")
        found, n_labels = logits.argmax(dim=1), logits.shape[1]
        right = labels[found == labels]
        counts = [torch.bincount(one, minlength=n_labels) for one in (right, found, labels)]  # (L,) each
        language = [] if of_tokens is None else [of_tokens[first].sum()[None]]
        return torch.cat([one.double() for one in (*language, nats[None], *counts)])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        language, sums = (sums[0], sums[1:]) if self._language else (0.0, sums)
        nats, *counts = sums
        right, found, texts = np.array(counts).reshape(3, -1)  # (L,) each
        return {
            **({"valid_language_loss": language / texts.sum()} if self._language else {}),
            "valid_loss": nats / texts.sum(),
            "valid_accuracy": right.sum() / texts.sum(),
            "valid_macro_f1": mean_f1(right, found, texts),
            "valid_texts": float(texts.sum()),
        }

    def epochs(self, step: int) -> float:
        return self.train.epoch(step)
