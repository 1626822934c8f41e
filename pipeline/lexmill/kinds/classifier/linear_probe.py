"""A classification head on an encoder that stays as it is: features once, then the optimum (see `convex`).

Cost: one forward pass over train and valid, then seconds; memory 8 bytes a feature a text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import functional

from lexmill.base import layout, progress
from lexmill.base.storage import write_json
from lexmill.compute.execution import Execution, load_execution
from lexmill.kinds.classifier import LinearProbe
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.classifier.convex import Iteration, fit_logistic
from lexmill.kinds.classifier.task import ClassificationTask
from lexmill.training.curve import write_csv
from lexmill.training.engine import set_threads
from lexmill.training.production import STAGE, Training, write_model

if TYPE_CHECKING:
    from lexmill.models.common.heads import PooledClassifier


@dataclass(frozen=True)
class HeadFit:
    """What the search gave; the module then holds the head.

    Attributes:
        step: iterations made.
        passes: evaluations of loss and gradient, each over the whole of train.
        train_loss: mean nats a text at the end, without the penalty.
        largest_gradient: what is left of it at the end.
        metrics: valid_loss, valid_accuracy, valid_texts of the head.
        rows: the curve, a row an iteration; `grad_norm` is the largest gradient, tokens are texts.
        seconds: wall time, the features included.
    """

    step: int
    passes: int
    train_loss: float
    largest_gradient: float
    metrics: dict[str, float]
    rows: list[dict[str, float]]
    seconds: float


def fit(training: Training, recipe: LinearProbe, sizes: Mapping[str, int]) -> None:
    """Find the optimum of the head, and write what a training writes.

    Args:
        sizes: counts for the metrics.
    """
    task, run = cast(ClassificationTask, training.task), f"{STAGE}-{training.name}"
    found = fit_head(run, task, recipe, load_execution())
    write_model(training)
    write_csv(layout.curve(training.name), found.rows)
    measured = {
        "train_loss": found.train_loss,
        **found.metrics,
        "best_step": found.step,
        "steps": found.step,
        "epochs": found.passes,
        "stopped_early": 0,
        "largest_gradient": found.largest_gradient,
        **sizes,
    }
    write_json(layout.metrics(STAGE, training.name), measured)
    write_json(Path(".lexmill") / "metrics" / f"{run}.json", {"seconds": found.seconds, "steps": found.step})
    accuracy, loss = 100 * found.metrics["valid_accuracy"], found.metrics["valid_loss"]
    progress.say(f"{STAGE} {training.name}: valid accuracy {accuracy:.1f}, loss {loss:.3f}, {found.step} iterations")


def fit_head(name: str, task: ClassificationTask, settings: LinearProbe, execution: Execution) -> HeadFit:
    """Give the head of the task's classifier its optimum on train.

    The encoder, in eval mode and float32, runs on the execution settings' device.
    """
    begun = time.monotonic()
    set_threads(execution)
    module = cast("PooledClassifier", task.module)
    module.eval().to(torch.device(execution.accelerator))
    texts, labels = _features(f"{name}: features of train", module, task.train)
    valid_texts, valid_labels = _features(f"{name}: features of valid", module, task.valid)
    module.cpu()
    rows: list[dict[str, float]] = []

    def measure(at: Iteration) -> dict[str, float]:
        logits = functional.linear(valid_texts, at.weight, at.bias)
        return {
            "valid_loss": float(functional.cross_entropy(logits, valid_labels)),
            "valid_accuracy": float((logits.argmax(1) == valid_labels).double().mean()),
            "valid_texts": len(valid_labels),
        }

    with progress.bar(name, settings.max_iterations) as bar:

        def note(at: Iteration) -> None:
            row = {"step": at.number, "tokens": at.passes * len(labels), "epoch": float(at.passes)}
            row |= {"train_loss": at.loss, "grad_norm": at.largest_gradient}
            rows.append({**row, "valid_loss": measure(at)["valid_loss"]})
            bar.update(1, loss=at.loss, gradient=at.largest_gradient)

        found = fit_logistic(texts, labels, module.head.out_features, settings, note)
    with torch.no_grad():
        module.head.weight.copy_(found.weight)
        module.head.bias.copy_(found.bias)
    if found.largest_gradient > settings.tolerance:
        progress.say(
            f"{name}: after {found.number} iterations the largest gradient is {found.largest_gradient:.1e}, above"
            f" recipe.tolerance ({settings.tolerance:g}); raise recipe.max_iterations or recipe.l2"
        )
    return HeadFit(
        step=found.number,
        passes=found.passes,
        train_loss=found.loss,
        largest_gradient=found.largest_gradient,
        metrics=measure(found),
        rows=rows,
        seconds=time.monotonic() - begun,
    )


@torch.no_grad()
def _features(title: str, module: PooledClassifier, batches: ClassificationBatches) -> tuple[Tensor, Tensor]:
    """What the head reads of every text, (N, D) float64, and the labels, (N)."""
    found, labels = [], []
    device = module.head.weight.device
    with progress.bar(title, -(-len(batches.ids) // batches.batch_size)) as bar:
        for batch in batches.evaluation_batches():
            tokens, mask = (torch.from_numpy(array).to(device) for array in (batch.tokens, batch.mask))
            found.append(module.features(tokens, mask).cpu().double())
            labels.append(torch.from_numpy(batch.labels))
            bar.update(1)
    return torch.cat(found), torch.cat(labels)
