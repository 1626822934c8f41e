"""Losses for unequal labels, how an encoder adapts, calibration: each beside its definition, then in a training."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.kinds.classifier import FineTuning, calibration
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.classifier.losses import balanced_weights, label_loss
from lexmill.kinds.classifier.task import ClassificationTask
from lexmill.models import build, family
from lexmill.models import folder as model_folder
from lexmill.models.bert.model import Bert
from lexmill.models.bert.shape import Shape
from lexmill.models.common.heads import PooledClassifier
from lexmill.params.length import Length
from lexmill.params.optimizers import AdamW, LinearSchedule, Muon
from lexmill.stages import evaluate, train
from lexmill.training import optimizers
from lexmill.training.adapting import adapt
from lexmill.training.task import Pace
from tests.kinds.classifier.made_models import write_params
from tests.support.labelled_model import FINE_TUNING, SHAPE, read_json

RECIPE = FineTuning("gradient", AdamW("adamw", lr=0.01), LinearSchedule("linear"), length=Length(10, "steps"), batch=4)


def network(layers: int = 3) -> PooledClassifier:
    torch.manual_seed(0)
    return PooledClassifier(Bert(Shape(**{**SHAPE, "num_hidden_layers": layers}), 30), 3, 0.0)


def test_the_focal_loss_is_its_formula() -> None:
    logits, labels = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.5, 0.0]]), torch.tensor([0, 2])
    p = logits.softmax(1)
    wanted = [-((1 - p[row, label]) ** 2) * p[row, label].log() for row, label in enumerate(labels.tolist())]
    assert torch.allclose(label_loss(logits, labels, focal_gamma=2.0), torch.stack(wanted))


def test_a_focal_loss_without_focus_is_smoothed_cross_entropy() -> None:
    logits, labels = torch.randn(7, 4), torch.tensor([0, 1, 2, 3, 0, 1, 2])
    plain = label_loss(logits, labels, smoothing=0.1)
    target = torch.full((7, 4), 0.025).scatter_add(1, labels[:, None], torch.full((7, 1), 0.9))
    assert torch.allclose(plain, -(target * logits.log_softmax(1)).sum(1), atol=1e-6)
    assert torch.allclose(label_loss(logits, labels, smoothing=0.1, focal_gamma=1e-9), plain, atol=1e-5)


def test_the_focal_loss_of_a_sure_right_answer_has_a_gradient_without_nan() -> None:
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    label_loss(logits, torch.tensor([0]), focal_gamma=0.5).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_balanced_weights_are_scikit_learns() -> None:
    labels = [0, 0, 0, 0, 0, 2, 2, 1]
    wanted = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert balanced_weights(labels, 3).tolist() == pytest.approx(wanted.tolist())
    assert balanced_weights([0, 2], 3).tolist() == pytest.approx([2 / 3, 0.0, 2 / 3])


def test_a_weighted_loss_is_torchs_weighted_mean() -> None:
    ids, labels = [[1, 2], [3], [4, 5], [6], [7]], [0, 0, 0, 1, 2]
    recipe = dataclasses.replace(RECIPE, class_weights="balanced", batch=5)
    task = ClassificationTask(network().eval(), *[ClassificationBatches(ids, labels, 5, 0, 0)] * 2, recipe)
    batch = {name: torch.as_tensor(array) for name, array in task.batch(0, 0, 1).items()}
    total, count = task.loss_sum(task.module, batch)
    logits = task.module(batch["tokens"], batch["mask"])
    wanted = nn.functional.cross_entropy(logits, batch["labels"], weight=balanced_weights(labels, 3))
    assert (total / count).item() == pytest.approx(wanted.item(), rel=1e-5)


def test_balanced_batches_have_each_label_alike_and_every_text() -> None:
    labels = [0] * 90 + [1] * 10
    batches = ClassificationBatches([[i + 1] for i in range(100)], labels, 20, 3, 0, balanced=True)
    epoch = [batches.batch(step).index for step in range(5)]
    assert all((batches.labels[index] == 1).sum() == 10 for index in epoch)
    drawn = np.bincount(np.concatenate(epoch), minlength=100)
    assert drawn[90:].tolist() == [5] * 10
    assert drawn[:90].max() == 1
    assert drawn[:90].sum() == 50
    later = np.concatenate([batches.batch(step).index for step in range(5, 9)])
    assert set(later) | set(np.concatenate(epoch)) == set(range(100))  # 40 more of the frequent label: all 90
    shares = [batches.rows(2, rank, 3).index.tolist() for rank in range(3)]
    assert sorted(text for share in shares for text in share) == sorted(batches.batch(2).index.tolist())


def test_validation_has_scikit_learns_macro_f1() -> None:
    ids, labels = [[1 + i % 20, 1 + i % 7] for i in range(23)], [i % 3 for i in range(23)]
    task = ClassificationTask(network().eval(), *[ClassificationBatches(ids, labels, 5, 0, 0)] * 2)
    sums, found, right = torch.zeros(10), [], []
    for arrays in task.validation_batches(0, 1):
        batch = {name: torch.as_tensor(array) for name, array in arrays.items()}
        with torch.no_grad():
            sums = sums + torch.as_tensor(task.validation_sums(task.module, batch))
            found += task.module(batch["tokens"], batch["mask"]).argmax(1).tolist()
        right += batch["labels"].tolist()
    metrics = task.validation_metrics(sums.tolist())
    assert metrics["valid_macro_f1"] == pytest.approx(f1_score(right, found, average="macro", zero_division=0))
    assert metrics["valid_accuracy"] == pytest.approx(np.mean(np.array(right) == found))
    assert metrics["valid_texts"] == 23


def test_rates_fall_with_the_distance_from_the_head() -> None:
    module = network()
    pace = adapt(module, dataclasses.replace(RECIPE, layer_decay=0.5, unfreeze_every=Length(2, "steps")), 1)
    assert pace("head.weight") == Pace(1.0, 0)
    assert pace("encoder.encoder.layer.2.output.dense.weight") == Pace(0.5, 2)
    assert pace("encoder.encoder.layer.0.output.dense.weight") == Pace(0.125, 6)
    assert pace("encoder.embeddings.word_embeddings.weight") == Pace(0.0625, 8)
    built = optimizers.build(module, RECIPE.optimizer, pace)
    named = {parameter: name for name, parameter in module.named_parameters()}
    built.set_learning_rates(1.0, 5)
    rates = {named[p]: group["lr"] for part in built.parts for group in part.param_groups for p in group["params"]}
    assert rates.keys() == set(named.values())
    assert rates["head.bias"] == 0.01
    assert rates["encoder.encoder.layer.1.output.LayerNorm.weight"] == pytest.approx(0.0025)
    assert rates["encoder.encoder.layer.0.output.dense.weight"] == 0.0  # begins after 6 steps


def test_frozen_blocks_and_embeddings_stay() -> None:
    module = network()
    adapt(module, dataclasses.replace(RECIPE, frozen_blocks=2), 1)
    learning = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert learning == {name for name, _ in module.named_parameters() if "layer.2." in name or name.startswith("head")}


def test_the_norm_after_the_blocks_learns_as_the_last_block_does() -> None:
    shape = family("modern_encoder").tiny
    module = PooledClassifier(build({"family": "modern_encoder", "shape": shape, "vocab_size": 9}), 3, 0.0)
    pace = adapt(module, dataclasses.replace(RECIPE, layer_decay=0.5, frozen_blocks=1), 1)
    assert shape["n_layer"] == 2
    assert pace("encoder.norm.weight") == pace("encoder.blocks.1.feed_forward_norm.weight") == Pace(0.5, 0)
    assert pace("encoder.embedding.weight") == Pace(0.125, 0)
    learning = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert "encoder.norm.weight" in learning
    assert "encoder.embedding.weight" not in learning


def test_low_ranks_need_a_matrix_in_the_blocks() -> None:
    module = PooledClassifier(build({"family": "text_cnn", "shape": family("text_cnn").tiny, "vocab_size": 9}), 3, 0.0)
    with pytest.raises(UserError, match=r"recipe\.lora_rank: the network has no linear layer"):
        adapt(module, dataclasses.replace(RECIPE, lora_rank=2), 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"frozen_blocks": 4}, "the encoder has 3 blocks"), ({"layer_decay": 0.9}, "no stack of blocks")],
)
def test_an_encoder_that_cannot_adapt_so_is_refused(changes: dict[str, Any], message: str) -> None:
    module: Any = network()
    if "layer_decay" in changes:
        module.encoder = nn.Embedding(3, 4)
    with pytest.raises(UserError, match=message):
        adapt(module, dataclasses.replace(RECIPE, **changes), 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_weights": "balanced", "sampling": "balanced"}, "choose one"),
        ({"optimizer": Muon("muon", lr=0.02), "layer_decay": 0.9}, "muon has one rate"),
        ({"lora_rank": 4, "frozen_blocks": 1}, "it freezes all blocks"),
    ],
)
def test_choices_that_contradict_each_other_are_errors(changes: dict[str, Any], message: str) -> None:
    assert any(message in error for error in dataclasses.replace(RECIPE, **changes).errors())


def test_muon_refuses_parameters_of_several_paces() -> None:
    with pytest.raises(UserError, match="one rate"):
        optimizers.build(network(), Muon("muon", lr=0.02), lambda name: Pace(0.5 if "head" in name else 1.0))


def test_a_temperature_undoes_a_scale() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4000, 3))
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([generator.choice(3, p=row) for row in chances])
    assert calibration.fit_temperature(logits, labels) == pytest.approx(1, abs=0.1)
    assert calibration.fit_temperature(4 * logits, labels) == pytest.approx(
        4 * calibration.fit_temperature(logits, labels), rel=1e-3
    )


def test_a_temperature_has_the_scale_of_the_logits() -> None:
    """Margins may be of any size; where all texts are right, the scores still stay below 1."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(500, 2))
    labels = (logits[:, 1] - logits[:, 0] + generator.normal(size=500) > 0).astype(np.int64)
    plain = calibration.fit_temperature(logits, labels)
    assert calibration.fit_temperature(1e5 * logits, labels) == pytest.approx(1e5 * plain, rel=1e-4)
    assert calibration.fit_temperature(logits, logits.argmax(1)) == pytest.approx(np.abs(logits).max() / 20, rel=1e-4)
    assert calibration.fit_temperature(0 * logits, labels) == 1


def test_the_calibration_error_by_hand() -> None:
    confidence = np.array([0.95, 0.95, 0.95, 0.95, 0.55, 0.55, 1.0])
    right = np.array([True, True, True, False, True, False, True])
    # bins of width 1/15: [.933, 1] has five, mean .96, four right; [.533, .6) has two, mean .55, one right
    assert calibration.calibration_error(confidence, right) == pytest.approx((5 * abs(0.8 - 0.96) + 2 * 0.05) / 7)


def test_the_abstention_threshold_by_hand() -> None:
    confidence = np.array([0.9, 0.8, 0.7, 0.7, 0.6])
    right = np.array([True, True, False, True, False])
    assert calibration.abstention_threshold(confidence, right, 0.75) == 0.7
    assert calibration.abstention_threshold(confidence, right, 1.0) == 0.8
    assert calibration.abstention_threshold(confidence, right, 0.5) == 0.6
    assert calibration.abstention_threshold(confidence, ~right, 0.9) is None


OPTIONS = {
    "balanced": {"class_weights": "balanced", "decided_by": "macro_f1"},
    "in turn": {"sampling": "balanced", "decided_by": "accuracy"},
    "smooth": {"label_smoothing": 0.1, "focal_gamma": 1.0},
    "by layer": {"layer_decay": 0.8, "unfreeze_every": "10 steps"},
    "low rank": {"lora_rank": 8, "optimizer": {"name": "adamw", "lr": 0.02}},
}


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("choice", OPTIONS)
def test_the_planted_word_is_learned_with_each_option(choice: str) -> None:
    write_params(FINE_TUNING | {"validate_every": "4 epochs", "length": "12 epochs"} | OPTIONS[choice])
    train.main("sentiment")
    assert read_json(layout.metrics("train", "sentiment"))["valid_accuracy"] > 0.9
    _, module = model_folder.load(layout.model("sentiment"))
    assert not any("parametrizations" in name for name, _ in module.named_parameters())


@pytest.mark.usefixtures("workspace")
def test_a_trained_classifier_is_calibrated_and_abstains() -> None:
    short = FINE_TUNING | {"length": "3 epochs", "calibrate": False}
    write_params(short)
    train.main("sentiment")
    plain = model_folder.load(layout.model("sentiment"))[1].state_dict()
    write_params(short | {"calibrate": True, "answer_accuracy": 0.8})
    train.main("sentiment")
    config, module = model_folder.load(layout.model("sentiment"))
    trained = read_json(layout.metrics("train", "sentiment"))
    assert trained["temperature"] != 1
    for name, value in module.state_dict().items():
        wanted = plain[name] / trained["temperature"] if name.startswith("head.") else plain[name]
        assert torch.allclose(value, wanted)
    assert 0 < trained["valid_answered"] < 1
    assert math.isclose(config["threshold"], trained["threshold"])
    evaluate.main("sentiment")
    measured = read_json(layout.metrics("evaluate", "sentiment"))["test"]
    assert 0 < measured["answered"] < 1
    assert measured["answered_accuracy"] >= measured["accuracy"]
    assert 0 <= measured["calibration_error"] < 0.5
    assert list(layout.plots("sentiment").glob("**/reliability.png"))
