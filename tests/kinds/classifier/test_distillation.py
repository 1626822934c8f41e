"""A classifier learns from another's probabilities: the loss by hand, what labels do not say, and wrong teachers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build
from lexmill.kinds.classifier import FineTuning
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.classifier.distillation import distillation_loss, teacher_logits
from lexmill.kinds.classifier.task import ClassificationTask
from lexmill.models import folder as model_folder
from lexmill.stages import evaluate, train
from lexmill.tokenizers import load
from lexmill.training.task import tensors
from tests.support.labelled_model import (
    FILLER,
    FINE_TUNING,
    MARKS,
    begin,
    entry,
    make_checkpoint,
    params_of,
    read_json,
    records,
    write,
)
from tests.support.prepared import write_prepared


def softmax(row: list[float], temperature: float) -> list[float]:
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize("temperature", [1.0, 2.0, 7.5])
def test_the_loss_beside_its_definition(temperature: float) -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(4, 3) * 3, torch.randn(4, 3) * 3
    wanted = []
    for z, t in zip(student.tolist(), teacher.tolist(), strict=True):
        p, q = softmax(t, temperature), softmax(z, temperature)
        wanted.append(temperature**2 * sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    assert distillation_loss(student, teacher, temperature).tolist() == pytest.approx(wanted, rel=1e-5)
    assert distillation_loss(student, student, temperature).tolist() == pytest.approx([0] * 4, abs=1e-6)


class Known(torch.nn.Module):
    """Gives each text the logits of its first token."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(logits)
        self.encoder = torch.nn.Linear(1, 1)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.logits[tokens[:, 0]]


def recipe(**more: Any) -> FineTuning:
    errors: list[str] = []
    found = build(FineTuning, FINE_TUNING | more, errors)
    assert found is not None, errors
    return found


def test_the_objective_weighs_labels_and_teacher_text_by_text() -> None:
    torch.manual_seed(1)
    logits, teacher, labels = torch.randn(5, 3), torch.randn(5, 3), [0, 0, 0, 1, 2]
    batches = ClassificationBatches([[i] for i in range(5)], labels, 5, 0, 0)
    chosen = recipe(teacher="big", teacher_weight=0.3, teacher_temperature=2.0, class_weights="balanced")
    task = ClassificationTask(Known(logits), batches, batches, chosen, teacher)
    total, count = task.loss_sum(task.module, tensors(task.batch(0, 0, 1), torch.device("cpu")))
    weights = [5 / (3 * labels.count(label)) for label in labels]
    wanted = sum(
        weight
        * (
            0.7 * -math.log(softmax(z, 1)[label])
            + 0.3 * 4 * sum(a * math.log(a / b) for a, b in zip(softmax(t, 2), softmax(z, 2), strict=True))
        )
        for weight, label, z, t in zip(weights, labels, logits.tolist(), teacher.tolist(), strict=True)
    )
    assert total.item() == pytest.approx(wanted, rel=1e-5)
    assert float(count) == pytest.approx(sum(weights))
    alone = ClassificationTask(Known(logits), batches, batches, recipe())
    nats, texts = alone.loss_sum(alone.module, tensors(alone.batch(0, 0, 1), torch.device("cpu")))
    assert nats.item() == pytest.approx(
        sum(-math.log(softmax(z, 1)[y]) for z, y in zip(logits.tolist(), labels, strict=True))
    )
    assert texts == 5


def model(corpus: str, encoder: str, **recipe: Any) -> dict[str, Any]:
    return entry("classifier", corpus, FINE_TUNING | recipe, encoder)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    begin(tmp_path, monkeypatch)
    splits = {"train": records(120, 0), "valid": records(30, 1), "test": records(60, 2)}
    write_prepared(layout.corpus("reviews"), "labelled", splits)
    random = np.random.default_rng(0)
    noise = [record | {"label": str(random.choice(list(MARKS.values())))} for record in records(150, 3)]
    write_prepared(layout.corpus("noise"), "labelled", splits | {"train": noise})
    models = {
        "teacher": model("reviews", "tiny"),
        "alone": model("noise", "other"),
        "student": model("noise", "other", teacher="teacher", teacher_weight=1.0),
    }
    write(params_of(models))
    for name, words in (("tiny", [*FILLER, *MARKS]), ("other", [*MARKS, *FILLER][::-1])):
        make_checkpoint(words, name)
    return tmp_path


@pytest.mark.usefixtures("workspace")
def test_a_teacher_is_heard_where_labels_are_noise() -> None:
    accuracy = {}
    for name in ("teacher", "alone", "student"):
        train.main(name)
        evaluate.main(name)
        accuracy[name] = read_json(layout.metrics("evaluate", name))["test"]["accuracy"]
    assert accuracy["teacher"] > 0.95
    assert accuracy["alone"] < 0.6
    assert accuracy["student"] > 0.9
    config, module = model_folder.load(layout.model("teacher"))
    assert read_json(layout.model("student") / "config.json")["teacher"]["model"] == "teacher"
    assert "teacher" not in config

    texts = [record["text"] for record in records(9, 5)]
    tokenizer = load(layout.model("teacher") / "tokenizer")  # its own, which numbers words otherwise
    assert tokenizer.encode(texts[0]) != load(layout.tokenizer("other")).encode(texts[0])
    found = teacher_logits(layout.model("teacher"), texts, config["labels"])
    for text, row in zip(texts, found, strict=True):
        ids = torch.tensor([[tokenizer.bos_id, *tokenizer.encode(text), tokenizer.eos_id]])
        with torch.no_grad():
            assert row.tolist() == pytest.approx(
                module(ids, torch.ones_like(ids, dtype=torch.bool))[0].tolist(), abs=1e-4
            )
    with pytest.raises(
        UserError, match="the teacher has the labels negative, positive, so-so, but the corpus bad, good"
    ):
        teacher_logits(layout.model("teacher"), texts, ["bad", "good"])
    with pytest.raises(UserError, match="the teacher reads single texts, the corpus has others"):
        teacher_logits(layout.model("teacher"), [("a", "b")], config["labels"])


def test_the_stage_waits_for_the_teacher() -> None:
    data = params_of({"big": model("reviews", "tiny"), "small": model("reviews", "tiny", teacher="big")})
    assert data["inputs"]["small"]["teacher"] == "artifacts/models/big"
    assert data["inputs"]["big"]["teacher"] == data["inputs"]["big"]["start"]  # no other dependency
    assert params.parse(data).models["small"].recipe.teacher == "big"


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"small": model("reviews", "tiny", teacher="bigg"), "big": model("reviews", "tiny")}, "did you mean 'big'"),
        (
            {
                "a": model("reviews", "tiny", teacher="b"),
                "b": model("reviews", "tiny") | {"start": "artifacts/models/a"},
            },
            r"models\.a\.recipe\.teacher: it learns from itself: a -> b -> a",
        ),
        ({"a": model("reviews", "tiny", teacher="a")}, r"it learns from itself: a -> a"),
        (
            {
                "a": model("reviews", "tiny", teacher="b"),
                "b": {**model("reviews", "tiny"), "kind": "regressor", "recipe": FINE_TUNING},
            },
            "'b' is of kind 'regressor'; a teacher is a classifier too",
        ),
        ({"a": model("reviews", "tiny", teacher="", teacher_weight=0.0)}, "teacher_weight: 0"),
    ],
)
def test_a_wrong_teacher_is_named(models: dict[str, Any], message: str) -> None:
    with pytest.raises(UserErrors, match=message):
        params.parse(params_of(models))
