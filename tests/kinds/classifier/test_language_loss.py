"""A causal network that learns its texts beside their labels: against a slow twin, stopped, refused, and left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from lexmill import models
from lexmill.base import layout
from lexmill.base.errors import UserErrors
from lexmill.base.storage import sha256_folder
from lexmill.data.texts import pad
from lexmill.kinds.classifier import FineTuning
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.classifier.task import ClassificationTask
from lexmill.models import folder as model_folder
from lexmill.models.common.heads import PooledClassifier
from lexmill.params import load
from lexmill.params.models import Model
from lexmill.stages import tokenizer, train
from tests.kinds.classifier.made_models import RECIPE, write_network

ROWS = [[2, 7, 9, 8, 3], [2, 11, 3], [2, 5, 6, 3, 10, 3], [2]]  # the last has no token after the first
LABELS = [0, 1, 1, 0]


def made(family: str, **shape: Any) -> Any:
    torch.manual_seed(0)
    sizes = {**models.family(family).tiny, **shape}
    config = {
        "family": family,
        "shape": sizes,
        "vocab_size": 23,
        "labels": ["a", "b"],
        "dropout": 0.0,
        "pooling": "last",
    }
    return models.build(config).eval()


def recipe(**changes: Any) -> FineTuning:
    plain = RECIPE | {"pooling": "last"} | changes
    entry = {"kind": "classifier", "family": "gpt", "shape": models.family("gpt").tiny, "start": "x", "evaluate": {}}
    errors: list[str] = []
    found = Model.convert({**entry, "data": {"corpus": "c", "tokenizer": "t"}, "recipe": plain}, "models.one", errors)
    assert found is not None, errors
    assert isinstance(found.recipe, FineTuning)
    return found.recipe


def task(module: Any, labels: list[int] = LABELS, **changes: Any) -> ClassificationTask:
    batches = [ClassificationBatches(ROWS, labels, 4, 1, pad_id=0) for _ in range(2)]
    return ClassificationTask(module, *batches, recipe(**changes))


def tensors(rows: list[list[int]], labels: list[int]) -> dict[str, torch.Tensor]:
    tokens, mask = pad(rows)
    found = {"tokens": torch.from_numpy(tokens), "mask": torch.from_numpy(mask), "labels": torch.tensor(labels)}
    return {**found, "texts": torch.arange(len(labels))}


def twin(module: PooledClassifier, row: list[int], label: int, weight: float) -> torch.Tensor:
    """The loss of one text, token by token, from the network's own logits."""
    tokens = torch.tensor([row])
    encoder: Any = module.encoder
    hidden, logits = encoder.hidden(tokens)[0], encoder(tokens)[0]
    loss = nn.functional.cross_entropy(module.head(hidden[-1])[None], torch.tensor([label]))
    nats = [-logits[i].log_softmax(0)[row[i + 1]] for i in range(len(row) - 1)]
    return loss + weight * torch.stack(nats).mean() if nats else loss


@pytest.mark.parametrize(("family", "shape"), [("gpt", {}), ("llama", {"tie_embeddings": False}), ("gru", {})])
def test_the_loss_is_that_of_the_label_and_the_mean_of_each_texts_tokens(family: str, shape: dict[str, Any]) -> None:
    module = made(family, **shape)
    parameters = dict(module.named_parameters())
    wanted = torch.stack([twin(module, row, label, 0.5) for row, label in zip(ROWS, LABELS, strict=True)]).sum()
    of_twin = torch.autograd.grad(wanted, list(parameters.values()), allow_unused=True)
    joint = task(module, language_loss=0.5)
    found, count = joint.loss_sum(module, tensors(ROWS, LABELS))
    assert count == 4
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(found, list(parameters.values()), allow_unused=True)
    for name, one, other in zip(parameters, gradients, of_twin, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=name)
    parts = [joint.loss_sum(module, tensors([row], [label]))[0] for row, label in zip(ROWS, LABELS, strict=True)]
    torch.testing.assert_close(torch.stack(parts).sum(), wanted, rtol=1e-5, atol=1e-5)
    # Validation: plain cross-entropy, and the texts' mean nats a token beside it.
    metrics = joint.validation_metrics(torch.as_tensor(joint.validation_sums(module, tensors(ROWS, LABELS))).tolist())
    plain = torch.stack([twin(module, row, label, 0.0) for row, label in zip(ROWS, LABELS, strict=True)]).mean()
    assert metrics["valid_loss"] == pytest.approx(plain.item(), rel=1e-5)
    assert metrics["valid_language_loss"] == pytest.approx(((wanted / 4 - plain) / 0.5).item(), rel=1e-4)
    assert metrics["valid_texts"] == 4


def test_weights_of_labels_weigh_whole_texts() -> None:
    module = made("gpt")
    labels = [0, 1, 1, 1]
    joint = task(module, labels, language_loss=2.0, class_weights="balanced")
    found, count = joint.loss_sum(module, tensors(ROWS, labels))
    weights = [4 / (2 * 1), *[4 / (2 * 3)] * 3]
    losses = [w * twin(module, row, label, 2.0) for w, row, label in zip(weights, ROWS, labels, strict=True)]
    torch.testing.assert_close(found, torch.stack(losses).sum(), rtol=1e-5, atol=1e-5)
    assert float(count) == pytest.approx(sum(weights))


def test_without_it_nothing_is_computed_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made("gpt")
    monkeypatch.setattr(PooledClassifier, "_nats", None)
    without, _ = task(module).loss_sum(module, tensors(ROWS, LABELS))
    logits = module(*(tensors(ROWS, LABELS)[key] for key in ("tokens", "mask")))
    assert torch.equal(without, nn.functional.cross_entropy(logits, torch.tensor(LABELS), reduction="none").sum())
    sums = task(module).validation_sums(module, tensors(ROWS, LABELS))
    assert "valid_language_loss" not in task(module).validation_metrics(torch.as_tensor(sums).tolist())


@pytest.mark.usefixtures("word_workspace")
def test_a_joint_training_learns_its_texts_and_a_stopped_one_ends_like_a_straight_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joint = RECIPE | {"pooling": "last", "length": "4 epochs", "language_loss": 0.5}
    write_network("gpt", joint | {"optimizer": {"name": "adam", "lr": 0.01}}, "bpe")
    tokenizer.main("words")
    train.main("sentiment")
    straight = sha256_folder(layout.model("sentiment")), layout.curve("sentiment").read_bytes()
    learned = json.loads(layout.metrics("train", "sentiment").read_text(encoding="utf-8"))
    size = model_folder.load(layout.model("sentiment"))[0]["vocab_size"]
    assert learned["valid_language_loss"] < 0.8 * torch.tensor(float(size)).log()

    Path("execution.yaml").write_text("threads: 1\ncheckpoint_seconds: 0\n", encoding="utf-8")
    original = ClassificationTask.batch

    def stop(given: ClassificationTask, step: int, rank: int, world: int) -> Any:
        if step == 9:
            raise RuntimeError("pulled plug")
        return original(given, step, rank, world)

    with monkeypatch.context() as patch:
        patch.setattr(ClassificationTask, "batch", stop)
        with pytest.raises(RuntimeError, match="pulled plug"):
            train.main("sentiment")
    train.main("sentiment")
    assert (sha256_folder(layout.model("sentiment")), layout.curve("sentiment").read_bytes()) == straight


@pytest.mark.usefixtures("word_workspace")
def test_an_encoder_is_refused() -> None:
    write_network("modern_encoder", RECIPE)
    plain = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    plain["models"]["sentiment"]["recipe"]["language_loss"] = 0.5
    Path("params.yaml").write_text(yaml.safe_dump(plain), encoding="utf-8")
    with pytest.raises(UserErrors, match=r"recipe\.language_loss: family 'modern_encoder' does not predict tokens"):
        load()
