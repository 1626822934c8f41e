"""Fine-tuning: a planted word is learned, the folder stands alone, and a stopped run ends like a straight one."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import canonical_json, sha256_folder
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.texts import encode
from lexmill.evaluation.rows import read_rows
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.classifier.metrics import per_class
from lexmill.kinds.classifier.predict import classify_texts
from lexmill.kinds.classifier.task import ClassificationTask
from lexmill.models import folder as model_folder
from lexmill.models.common.heads import PooledClassifier
from lexmill.models.pretrained import read
from lexmill.stages import evaluate, train
from lexmill.training import engine
from lexmill.training.task import tensors
from tests.kinds.classifier.made_models import write_params
from tests.support.labelled_model import FILLER, FINE_TUNING, MARKS, make_checkpoint, read_json, records
from tests.support.prepared import write_prepared


@pytest.mark.usefixtures("workspace")
def test_the_planted_word_is_learned_and_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEXMILL_PROGRESS", "records")
    train.main("sentiment")
    # What it counts are texts, on the bar as in the points.
    bar = [line for line in capsys.readouterr().err.split("\n") if "train-sentiment" in line and "valid" in line]
    assert "texts/s" in bar[-1]
    assert "tok" not in bar[-1]
    points = Path(".lexmill/metrics/train-sentiment.jsonl").read_text(encoding="utf-8")
    assert '"texts_per_second"' in points
    assert "tokens_per_second" not in points
    trained = read_json(layout.metrics("train", "sentiment"))
    assert trained["valid_accuracy"] > 0.95
    assert trained["steps"] == 120
    assert trained["train_texts"] == 120
    assert layout.curve("sentiment").read_text(encoding="utf-8").startswith("step,tokens,epoch,train_loss")
    config = read_json(layout.model("sentiment") / "config.json")
    assert (config["kind"], config["labels"]) == ("classifier", ["negative", "positive", "so-so"])
    assert not list(Path(".lexmill/checkpoints").rglob("*.safetensors")), "what a resume needs goes when it is done"

    evaluate.main("sentiment")
    found = read_json(layout.metrics("evaluate", "sentiment"))
    rows = read_rows(layout.predictions("sentiment") / "rows.jsonl")
    assert found["test"]["accuracy"] == np.mean([row["label"] == row["predicted"] for row in rows]) > 0.9
    losses = [-math.log(row["probabilities"][row["label"]]) for row in rows]
    assert found["test"]["loss"] == pytest.approx(np.mean(losses))
    assert sum(found["confusion"].values()) == 33
    assert found["per_class"] == per_class(rows)
    assert {label: one["items"] for label, one in found["per_class"].items()} == dict.fromkeys(config["labels"], 11)
    further = read_rows(layout.predictions("sentiment") / "rows-test_hard.jsonl")
    hits = [row["label"] == row["predicted"] for row in further]
    assert found["tests"]["test_hard"]["accuracy"] == np.mean(hits)
    assert [row["label"] for row in further] == [MARKS[mark] for mark in MARKS] * 4
    samples = read_json(layout.samples("sentiment"))
    assert samples["worst"][0]["loss"] == pytest.approx(max(losses))
    pictures = layout.plots("sentiment")
    names = ["attention.png", "confusion.png", "curve.png", "reliability.png", "words.png"]
    assert sorted(path.name for path in pictures.iterdir()) == names


@pytest.mark.usefixtures("workspace")
def test_a_stopped_fine_tuning_ends_like_a_straight_one(monkeypatch: pytest.MonkeyPatch) -> None:
    write_params(FINE_TUNING | {"length": "1 epochs", "head_dropout": 0.3})
    train.main("sentiment")
    straight = sha256_folder(layout.model("sentiment")), layout.curve("sentiment").read_bytes()

    Path("execution.yaml").write_text("threads: 1\ncheckpoint_seconds: 0\n", encoding="utf-8")
    original = ClassificationTask.batch

    def stop(task: ClassificationTask, step: int, rank: int, world: int) -> Any:
        if step == 9:
            raise RuntimeError("pulled plug")
        return original(task, step, rank, world)

    with monkeypatch.context() as patch:
        patch.setattr(ClassificationTask, "batch", stop)
        with pytest.raises(RuntimeError, match="pulled plug"):
            train.main("sentiment")
    train.main("sentiment")
    assert (sha256_folder(layout.model("sentiment")), layout.curve("sentiment").read_bytes()) == straight


class NotTrained(Exception):
    """Raised in place of a training."""


def caught(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What trainings are known by, one after the other; none is made."""
    seen: list[str] = []

    def fit(*_: Any, identity: dict[str, Any], **__: Any) -> None:
        seen.append(canonical_json(identity))
        raise NotTrained

    monkeypatch.setattr(engine, "fit", fit)
    return seen


@pytest.mark.usefixtures("workspace")
def test_a_checkpoint_belongs_to_whatever_was_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = caught(monkeypatch)

    def other_texts() -> None:
        shutil.rmtree(layout.corpus("reviews"))
        splits = {"train": records(120, 5), "valid": records(30, 1), "test": records(33, 2)}
        write_prepared(layout.corpus("reviews"), "labelled", splits)

    changes: list[Callable[[], Any]] = [
        lambda: None,
        other_texts,
        lambda: make_checkpoint([*MARKS, *FILLER]),
        lambda: write_params(max_train=100),
        lambda: write_params(FINE_TUNING | {"batch": 5}),
        lambda: write_params(max_tokens=16),
        lambda: write_params(FINE_TUNING | {"head_dropout": 0.2}),
    ]
    for change in changes:
        change()
        with pytest.raises(NotTrained):
            train.main("sentiment")
    assert len(set(seen)) == len(changes)


@pytest.mark.usefixtures("workspace")
def test_a_linear_probe_is_the_optimum_of_the_head_and_leaves_the_encoder() -> None:
    write_params({"method": "linear_probe", "l2": 0.5, "tolerance": 1e-7})
    train.main("sentiment")

    config, module = model_folder.load(layout.model("sentiment"))
    assert isinstance(module, PooledClassifier)
    corpus = PreparedCorpus(layout.corpus("reviews"))
    for name, value in read(layout.checkpoint("tiny")).state.items():
        assert torch.equal(value, module.encoder.state_dict()[name]), name

    tokenizer = tokenizers.load(layout.tokenizer("tiny"))
    texts = list(corpus.records("train"))
    features = []
    with torch.inference_mode():
        for ids in encode(tokenizer, [record["text"] for record in texts], 20):
            tokens = torch.tensor([ids])
            features.append(module.features(tokens, torch.ones_like(tokens, dtype=torch.bool))[0].double().numpy())
    oracle = LogisticRegression(C=1 / 0.5, tol=1e-10, max_iter=100_000)
    oracle.fit(np.stack(features), [config["labels"].index(record["label"]) for record in texts])
    np.testing.assert_allclose(module.head.weight.detach(), oracle.coef_, atol=1e-4)
    logits = np.stack(features) @ module.head.weight.detach().double().numpy().T + module.head.bias.detach().numpy()
    np.testing.assert_allclose(torch.from_numpy(logits).softmax(1), oracle.predict_proba(np.stack(features)), atol=1e-4)

    found = read_json(layout.metrics("train", "sentiment"))
    curve = layout.curve("sentiment").read_text(encoding="utf-8").strip().split("\n")
    assert len(curve) - 1 == found["steps"]
    assert found["largest_gradient"] <= 1e-7
    assert (found["train_texts"], found["valid_texts"]) == (120, 30)
    evaluate.main("sentiment")
    assert read_json(layout.metrics("evaluate", "sentiment"))["test"]["loss"] < 1.2


@pytest.mark.usefixtures("workspace")
def test_a_linear_probe_is_the_same_to_the_bit_each_time() -> None:
    write_params({"method": "linear_probe"})
    train.main("sentiment")
    first = sha256_folder(layout.model("sentiment")), layout.curve("sentiment").read_bytes()
    train.main("sentiment")
    assert (sha256_folder(layout.model("sentiment")), layout.curve("sentiment").read_bytes()) == first


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("key", ["length", "batch", "schedule", "patience", "clip_norm", "head_dropout"])
def test_a_linear_probe_takes_nothing_that_it_has_no_use_for(key: str) -> None:
    write_params({"method": "linear_probe", key: {"schedule": FINE_TUNING["schedule"]}.get(key, 1)})
    with pytest.raises(UserErrors, match=rf"models\.sentiment\.recipe\.{key}: "):
        train.main("sentiment")


@pytest.mark.usefixtures("workspace")
def test_fewer_texts_are_the_same_ones_each_time() -> None:
    write_params(FINE_TUNING | {"length": "1 epochs"}, max_train=16)
    train.main("sentiment")
    assert read_json(layout.metrics("train", "sentiment"))["train_texts"] == 16
    first = sha256_folder(layout.model("sentiment"))
    train.main("sentiment")
    assert sha256_folder(layout.model("sentiment")) == first


@pytest.mark.usefixtures("workspace")
def test_errors_are_reported_before_training() -> None:
    write_params(max_tokens=25)
    with pytest.raises(UserError, match=r"models\.sentiment\.data\.max_tokens is 25, but the network has 24 positions"):
        train.main("sentiment")
    with pytest.raises(UserError, match="did you mean 'sentiment'"):
        train.main("sentimant")
    write_params()
    manifest = layout.corpus("reviews") / "manifest.json"
    corpus = read_json(manifest)
    manifest.write_text(json.dumps({**corpus, "labels": ["positive"]}), encoding="utf-8")
    with pytest.raises(UserError, match=r"1 label\(s\)"):
        train.main("sentiment")
    corpus["splits"]["valid"] = {"records": 0, "shards": []}
    manifest.write_text(json.dumps(corpus), encoding="utf-8")
    with pytest.raises(UserError, match="the valid split is empty"):
        train.main("sentiment")


@pytest.mark.usefixtures("workspace")
def test_answers_do_not_depend_on_the_other_texts() -> None:
    write_params(FINE_TUNING | {"length": "1 epochs"}, max_train=8)
    train.main("sentiment")
    config, module = model_folder.load(layout.model("sentiment"))
    tokenizer = tokenizers.load(layout.model("sentiment") / model_folder.TOKENIZER)
    texts = ["a fine film", "", "dull " * 50, "so [SEP] so", "a fine film"]
    together = classify_texts(module, tokenizer, texts, config, 4096)
    assert together.shape == (5, 3)
    assert together.sum(axis=1) == pytest.approx(np.ones(5))
    for i, text in enumerate(texts):
        (alone,) = classify_texts(module, tokenizer, [text], config, 1)
        assert together[i] == pytest.approx(alone, abs=1e-6)
    assert classify_texts(module, tokenizer, [], config, 64).shape[0] == 0


class Bag(torch.nn.Module):
    """The mean of embeddings, for sums that are quickly checked."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(10, 2)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (self.embedding(tokens) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def test_the_parts_of_a_batch_give_its_loss_and_gradient() -> None:
    module = Bag()
    batches = ClassificationBatches([[1, 2, 2, 5, 6], [3], [4, 5, 6, 7], [7], [8, 9]], [0, 1, 0, 1, 1], 5, 1, pad_id=0)
    task = ClassificationTask(module, batches, batches)
    batch = task.batch(0, 0, 1)
    found = []
    for parts in ([batch], task.parts(batch, 1)):
        module.zero_grad()
        sums = [task.loss_sum(module, tensors(part, torch.device("cpu"))) for part in parts]
        total, texts = sum(loss for loss, _ in sums), sum(count for _, count in sums)
        assert isinstance(total, torch.Tensor)
        total.backward()
        assert module.embedding.weight.grad is not None
        found.append((len(parts), texts, total.detach(), module.embedding.weight.grad.clone()))
    (_, *whole), (parts_made, *cut) = found
    assert parts_made > 1
    torch.testing.assert_close(cut, whole)


def test_valid_is_summed_over_all_texts_for_any_batch_and_number_of_ranks() -> None:
    ids, labels = [[1, 2], [3], [4, 5, 6], [7], [8, 9]], [0, 1, 0, 1, 1]
    module = Bag()
    logits = torch.stack([module.embedding(torch.tensor(text)).mean(0) for text in ids]).detach()
    nats = torch.nn.functional.cross_entropy(logits, torch.tensor(labels), reduction="mean").item()
    right = (logits.argmax(1) == torch.tensor(labels)).double().mean().item()
    for size, world in ((1, 1), (2, 1), (5, 1), (2, 3)):
        batches = ClassificationBatches(ids, labels, size, 1, pad_id=0)
        task = ClassificationTask(module, batches, batches)
        sums = torch.zeros(1 + 3 * 2, dtype=torch.float64)
        for rank in range(world):
            for arrays in task.validation_batches(rank, world):
                rows = {name: torch.as_tensor(array) for name, array in arrays.items()}
                sums += task.validation_sums(module, rows).detach()
        found = task.validation_metrics(sums.tolist())
        f1 = f1_score(labels, logits.argmax(1).tolist(), average="macro", zero_division=0)
        wanted = {"valid_loss": nats, "valid_accuracy": right, "valid_macro_f1": f1, "valid_texts": 5}
        assert found == pytest.approx(wanted)
