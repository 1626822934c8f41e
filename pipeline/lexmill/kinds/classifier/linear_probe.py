"""Trains a classification head on a frozen encoder: features once, then the optimum (see `convex`).

Cost: one forward pass over train and valid, then seconds; memory 8 bytes per feature and text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import functional

from lexmill.base import layout, progress
from lexmill.base.storage import write_json
from lexmill.compute.execution import load_execution
from lexmill.kinds.classifier import LinearProbe
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.classifier.convex import Iteration, fit_logistic
from lexmill.training.curve import write_csv
from lexmill.training.engine import set_threads
from lexmill.training.production import STAGE, Training, write_model

if TYPE_CHECKING:
    from lexmill.models.common.heads import PooledClassifier


def fit(
    training: Training,
    train: ClassificationBatches,
    valid: ClassificationBatches,
    recipe: LinearProbe,
    sizes: Mapping[str, int],
) -> None:
    """Set the head of the training's network to its optimum on train, and write a training's outputs.

    The encoder, in eval mode and float32, runs on the execution settings' device. The curve has a row per iteration;
    its `grad_norm` is the largest gradient, its tokens are texts.

    Args:
        sizes: counts for the metrics.
    """
    begun, run, execution = time.monotonic(), f"{STAGE}-{training.name}", load_execution()
    set_threads(execution)
    module = cast("PooledClassifier", training.task.module)
    module.eval().to(torch.device(execution.accelerator))
    texts, labels = _features(f"{run}: features of train", module, train)
    valid_texts, valid_labels = _features(f"{run}: features of valid", module, valid)
    module.cpu()
    rows: list[dict[str, float]] = []

    def measure(at: Iteration) -> dict[str, float]:
        logits = functional.linear(valid_texts, at.weight, at.bias)
        return {
            "valid_loss": float(functional.cross_entropy(logits, valid_labels)),
            "valid_accuracy": float((logits.argmax(1) == valid_labels).double().mean()),
            "valid_texts": len(valid_labels),
        }

    with progress.bar(run, recipe.max_iterations) as bar:

        def note(at: Iteration) -> None:
            row = {"step": at.number, "tokens": at.passes * len(labels), "epoch": float(at.passes)}
            row |= {"train_loss": at.loss, "grad_norm": at.largest_gradient}
            rows.append({**row, "valid_loss": measure(at)["valid_loss"]})
            bar.update(1, loss=at.loss, gradient=at.largest_gradient)

        found = fit_logistic(texts, labels, module.head.out_features, recipe, note)
    with torch.no_grad():
        module.head.weight.copy_(found.weight)
        module.head.bias.copy_(found.bias)
    if found.largest_gradient > recipe.tolerance:
        progress.say(
            f"{run}: after {found.number} iterations the largest gradient is {found.largest_gradient:.1e}, above"
            f" recipe.tolerance ({recipe.tolerance:g}); raise recipe.max_iterations or recipe.l2"
        )
    write_model(training)
    write_csv(layout.curve(training.name), rows)
    measured, steps = measure(found), {"best_step": found.number, "steps": found.number, "epochs": found.passes}
    metrics = {"train_loss": found.loss, **measured, **steps, "stopped_early": 0}
    write_json(layout.metrics(STAGE, training.name), {**metrics, "largest_gradient": found.largest_gradient, **sizes})
    took = {"seconds": time.monotonic() - begun, "steps": found.number}
    write_json(Path(".lexmill") / "metrics" / f"{run}.json", took)
    accuracy, loss = 100 * measured["valid_accuracy"], measured["valid_loss"]
    progress.say(f"{STAGE} {training.name}: valid accuracy {accuracy:.1f}, loss {loss:.3f}, {found.number} iterations")


@torch.no_grad()
def _features(title: str, module: PooledClassifier, batches: ClassificationBatches) -> tuple[Tensor, Tensor]:
    """Return the head's input for every text, (N, D) float64, and the labels, (N)."""
    found, labels = [], []
    device = module.head.weight.device
    with progress.bar(title, -(-len(batches.ids) // batches.batch_size)) as bar:
        for batch in batches.evaluation_batches():
            tokens, mask = (torch.from_numpy(array).to(device) for array in (batch.tokens, batch.mask))
            found.append(module.features(tokens, mask).cpu().double())
            labels.append(torch.from_numpy(batches.labels[batch.index]))
            bar.update(1)
    return torch.cat(found), torch.cat(labels)
