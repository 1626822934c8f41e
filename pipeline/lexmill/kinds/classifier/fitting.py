"""Trains a classification head on fixed features: those of a frozen encoder, or counts of n-grams. No gradient goes
through the network; each method of `kinds.classifier.Fitted` has a module.

Cost: one forward pass over train and valid, then seconds; memory 8 bytes per feature and text, 16 per n-gram and text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill.base import progress
from lexmill.compute.execution import load_execution
from lexmill.decoding.whole_texts import by_text
from lexmill.kinds.classifier import Fitted, LinearProbe, LinearSVM, NaiveBayes, Perceptron
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.classifier.convex import Iteration, fit_logistic
from lexmill.kinds.classifier.linear_svm import fit_svm
from lexmill.kinds.classifier.naive_bayes import fit_naive_bayes
from lexmill.kinds.classifier.perceptron import fit_perceptron
from lexmill.kinds.classifier.solution import Note, Solution, Texts, measure, with_temperature
from lexmill.models.common.heads import BagClassifier
from lexmill.models.common.sparse_rows import joined
from lexmill.training.engine import set_threads
from lexmill.training.production import STAGE, Training, write_fitted

if TYPE_CHECKING:
    from lexmill.models.common.heads import NearestNeighbours, PooledClassifier


def fit(
    training: Training,
    train: ClassificationBatches,
    valid: ClassificationBatches,
    recipe: Fitted,
    sizes: Mapping[str, int],
) -> None:
    """Set the head of the training's network by the recipe, and write a training's outputs.

    The network, in eval mode and float32, runs on the execution settings' device. The curve has a row per iteration;
    its `grad_norm` is the largest gradient where there is one, its tokens are texts.

    Args:
        sizes: counts for the metrics.
    """
    begun, run, execution = time.monotonic(), f"{STAGE}-{training.name}", load_execution()
    set_threads(execution)
    module = cast("PooledClassifier", training.task.module)
    module.eval().to(torch.device(execution.accelerator))
    classes = len(training.config["labels"])
    texts = _features(f"{run}: features of train", module, train, classes)
    valid_texts = _features(f"{run}: features of valid", module, valid, classes)
    module.cpu()
    rows: list[dict[str, float]] = []

    with progress.bar(run, _most(recipe)) as bar:

        def note(at: Solution) -> None:
            row = {"step": at.number, "tokens": at.passes * len(texts), "epoch": float(at.passes)}
            row |= {"train_loss": at.loss, "valid_loss": measure(valid_texts, at.weight, at.bias)[0]}
            gradient = at.largest_gradient if isinstance(at, Iteration) else None
            rows.append(row if gradient is None else row | {"grad_norm": gradient})
            bar.update(1, loss=at.loss, **({} if gradient is None else {"gradient": gradient}))

        found = _solve(texts, valid_texts, recipe, train.seed, note)
    with torch.no_grad():
        module.head.weight.copy_(found.weight)
        module.head.bias.copy_(found.bias)
    gradient = {"largest_gradient": found.largest_gradient} if isinstance(found, Iteration) else {}
    if isinstance(recipe, LinearProbe) and gradient["largest_gradient"] > recipe.tolerance:
        progress.say(
            f"{run}: after {found.number} iterations the largest gradient is {gradient['largest_gradient']:.1e}, above"
            f" recipe.tolerance ({recipe.tolerance:g}); raise recipe.max_iterations or recipe.l2"
        )
    loss, accuracy = measure(valid_texts, found.weight, found.bias)
    measured = {"valid_loss": loss, "valid_accuracy": accuracy, "valid_texts": len(valid_texts)}
    steps = {"best_step": found.number, "steps": found.number, "epochs": found.passes}
    metrics = {"train_loss": found.loss, **measured, **steps, "stopped_early": 0, **gradient, **sizes}
    _write(training, rows, metrics, time.monotonic() - begun, _length(found))


@torch.no_grad()
def store(
    training: Training, train: ClassificationBatches, valid: ClassificationBatches, sizes: Mapping[str, int]
) -> None:
    """Store the texts of train in the training's network, a `NearestNeighbours`, and write a training's outputs.

    The curve has one row; its train loss is of texts that are their own nearest neighbour.
    """
    begun, run, execution = time.monotonic(), f"{STAGE}-{training.name}", load_execution()
    set_threads(execution)
    module = cast("NearestNeighbours", training.task.module)
    module.eval().to(torch.device(execution.accelerator))
    classes = len(training.config["labels"])
    texts = _features(f"{run}: features of train", module, train, classes)
    assert isinstance(texts.features, Tensor)
    module.vectors.copy_(functional.normalize(texts.features, dim=1))
    module.labels.copy_(texts.labels)
    (train_loss, _), (loss, accuracy) = (_measured(module, batches) for batches in (train, valid))
    module.cpu()
    measured = {"valid_loss": loss, "valid_accuracy": accuracy, "valid_texts": len(valid)}
    steps = {"best_step": 1, "steps": 1, "epochs": 1, "stopped_early": 0}
    row = {"step": 1, "tokens": len(texts), "epoch": 1.0, "train_loss": train_loss, "valid_loss": loss}
    metrics = {"train_loss": train_loss, **measured, **steps, **sizes}
    _write(training, [row], metrics, time.monotonic() - begun, f"{len(texts):,} texts stored")


def _measured(module: nn.Module, batches: ClassificationBatches) -> tuple[float, float]:
    """Return the mean nats and the accuracy over texts."""
    nats = right = 0.0
    device = next(module.buffers()).device
    for batch in batches.evaluation_batches():
        logits = module(*(torch.from_numpy(array).to(device) for array in (batch.tokens, batch.mask))).double()
        labels = torch.from_numpy(batches.labels[batch.index]).to(device)
        nats += float(functional.cross_entropy(logits, labels, reduction="sum"))
        right += float((logits.argmax(dim=1) == labels).sum())
    return nats / len(batches), right / len(batches)


def _write(
    training: Training, rows: list[dict[str, float]], metrics: dict[str, float], seconds: float, length: str
) -> None:
    """Write a training's outputs."""
    accuracy, loss = 100 * metrics["valid_accuracy"], metrics["valid_loss"]
    sentence = f"valid accuracy {accuracy:.1f}, loss {loss:.3f}, {length}"
    module = training.task.module
    name, model, config = training.name, training.model, training.config
    write_fitted(name, model, config, module, rows=rows, metrics=metrics, seconds=seconds, sentence=sentence)


def _most(recipe: Fitted) -> int:
    """Return the most iterations that are noted."""
    if isinstance(recipe, LinearProbe):
        return recipe.max_iterations
    return recipe.epochs if isinstance(recipe, Perceptron) else 1


def _length(found: Solution) -> str:
    return f"{found.number} iterations" if isinstance(found, Iteration) else f"{found.passes} passes"


def _solve(texts: Texts, valid: Texts, recipe: Fitted, seed: int, note: Note) -> Solution:
    """Return the head; margins get a temperature."""
    if isinstance(recipe, LinearProbe):
        return fit_logistic(texts.features, texts.labels, texts.classes, recipe, note)
    if isinstance(recipe, NaiveBayes):
        return fit_naive_bayes(texts, recipe, note)
    if isinstance(recipe, LinearSVM):
        return with_temperature(fit_svm(texts, recipe, note), valid, texts)
    return with_temperature(fit_perceptron(texts, recipe, seed, note), valid, texts)


@torch.no_grad()
def _features(title: str, module: PooledClassifier, batches: ClassificationBatches, classes: int) -> Texts:
    """Return the head's input for every text."""
    dense, sparse, labels = [], [], []
    device = next(tensor.device for tensor in (*module.parameters(), *module.buffers()))
    rounds = list(batches.evaluation_batches())
    with progress.bar(title, len(rounds)) as bar:
        for batch in rounds:
            tokens, mask = (torch.from_numpy(array).to(device) for array in (batch.tokens, batch.mask))
            if isinstance(module, BagClassifier):
                sparse.append(module.sparse(tokens, mask).cpu_doubles())
            else:
                # A matrix makes the mean logits of a text's windows of their mean features.
                dense.append(by_text(module.features(tokens, mask).cpu().double(), torch.from_numpy(batch.index))[0])
            labels.append(torch.from_numpy(batches.labels[list(dict.fromkeys(batch.index.tolist()))]))
            bar.update(1)
    features = joined(sparse) if sparse else torch.cat(dense)
    return Texts(features, torch.cat(labels), classes)
