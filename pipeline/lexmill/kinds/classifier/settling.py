"""What follows the training of a whole classifier: scores are calibrated, abstention is decided.

All of it becomes part of the weights, but the threshold of abstention, which is in the config.

Shape letters: N texts, L labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from lexmill.base import progress
from lexmill.decoding.whole_texts import by_text
from lexmill.kinds.classifier import FineTuning, calibration
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.models.common.heads import PooledClassifier

NEVER = 2.0  # a threshold above every score


@torch.no_grad()
def settle(
    module: PooledClassifier, valid: ClassificationBatches, recipe: FineTuning, config: dict[str, Any], name: str
) -> dict[str, float]:
    """Turn the trained network into the one that is written; return metrics of valid.

    Args:
        config: gets the `threshold` below which the model abstains, if it may.
        name: the model's, for messages.
    """
    if not recipe.calibrate and not recipe.answer_accuracy:
        return {}
    module.eval()
    found: dict[str, float] = {}
    rows, numbers = [], []
    for batch in valid.evaluation_batches():
        outputs = module(torch.from_numpy(batch.tokens), torch.from_numpy(batch.mask)).double()
        of_texts, first = by_text(outputs, torch.from_numpy(batch.index))
        rows.append(of_texts.numpy())
        numbers.append(valid.labels[batch.index[first.numpy()]])
    logits, labels = np.concatenate(rows), np.concatenate(numbers)  # (N, L), (N,)
    if recipe.calibrate:
        found["temperature"] = temperature = calibration.fit_temperature(logits, labels)
        for parameter in module.head.parameters():  # so that every use and every export has it
            parameter.div_(temperature)
        logits = logits / temperature
    confidence, right = softmax(logits, axis=1).max(axis=1), logits.argmax(axis=1) == labels
    found["valid_calibration_error"] = calibration.calibration_error(confidence, right)
    if recipe.answer_accuracy:
        threshold = calibration.abstention_threshold(confidence, right, recipe.answer_accuracy)
        if threshold is None:
            progress.say(
                f"train {name}: no score makes {recipe.answer_accuracy:.0%} of valid's answers right: it will abstain"
                " on every text; lower recipe.answer_accuracy"
            )
            threshold = NEVER
        config["threshold"] = found["threshold"] = threshold
        found["valid_answered"] = float((confidence >= threshold).mean())
    return found
