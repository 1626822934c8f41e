"""A classifier that learns from another one's probabilities (Hinton, Vinyals and Dean 2015).

With the logits z of the student and t of the teacher, the loss of a text is

    (1 - w) * loss of its label + w * T^2 * KL(softmax(t / T) || softmax(z / T)),

where T^2 keeps the gradient's size whatever the temperature. Cost: one pass of the teacher over train, before the first
step; 4 bytes a text and label.

Shape letters: N texts, B texts of a batch, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor
from torch.nn import functional

from lexmill import tokenizers
from lexmill.base import progress
from lexmill.base.errors import UserError
from lexmill.compute.execution import load_execution
from lexmill.data.texts import Text, read
from lexmill.decoding.predictor import BATCH_TOKENS
from lexmill.decoding.whole_texts import outputs
from lexmill.evaluation.device import evaluation_device
from lexmill.models import folder as model_folder


def teacher_logits(folder: Path, texts: Sequence[Text], labels: Sequence[str]) -> Tensor:
    """Return the logits of a trained classifier, (N, L) float32, as its predictions have them: calibrated, if it is.

    Args:
        folder: of the model; it reads texts by its own tokenizer.
        texts: of train.
        labels: the student's.

    Raises:
        UserError: it has other labels, or reads pairs where the texts are none.
    """
    config, module = model_folder.load(folder)
    if config["labels"] != list(labels):
        raise UserError(
            f"the teacher has the labels {', '.join(config['labels'])}, but the corpus {', '.join(labels)}; both must"
            " be the same",
            folder,
        )
    pairs = not isinstance(texts[0], str)
    if ("separator" in config) != pairs:
        raise UserError(f"the teacher reads {'single texts' if pairs else 'pairs'}, the corpus has others", folder)
    module.to(evaluation_device(load_execution()))
    tokenizer = tokenizers.load(folder / model_folder.TOKENIZER)
    progress.say(f"the teacher {folder.name} labels {len(texts):,} texts")
    return outputs(module, read(tokenizer, texts, config), BATCH_TOKENS).float()


def distillation_loss(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return T^2 * KL(softmax(teacher / T) || softmax(logits / T)) of each text, (B,), in nats where T is 1.

    Args:
        logits, teacher: (B, L) each.
    """
    student, target = ((one / temperature).log_softmax(dim=1) for one in (logits, teacher))
    return temperature**2 * functional.kl_div(student, target, reduction="none", log_target=True).sum(dim=1)
