"""Planted partners are found, from the prepared corpus to the command; the loss beside a slow one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.sentence_encoder import command
from lexmill.kinds.sentence_encoder.baselines import baselines
from lexmill.kinds.sentence_encoder.predict import Predictor
from lexmill.kinds.sentence_encoder.task import ContrastiveTask, Pairs
from lexmill.models import folder as model_folder
from lexmill.params import Baseline
from lexmill.registry.hugging_face import export
from lexmill.stages import evaluate, train
from lexmill.tokenizers import load
from tests.support.labelled_model import FINE_TUNING, begin, entry, make_checkpoint, params_of, read_json, write
from tests.support.prepared import write_prepared

# A word of the first text has one of the second for partner, which TF-IDF cannot know.
THINGS = {"film": "movie", "cold": "icy", "loud": "noisy", "bright": "shiny", "plot": "story", "big": "huge"}


def records(count: int, seed: int) -> list[dict[str, str]]:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words = random.choice(list(THINGS), 3, replace=False).tolist()
        together = random.random() < 0.8
        others = words if together else random.choice(list(THINGS), 3).tolist()
        made.append(
            {
                "text": " ".join(words),
                "second": " ".join(THINGS[word] for word in others),
                "label": "1" if together else "0",
            }
        )
    return made


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    begin(tmp_path, monkeypatch, "threads: 1\nmicro_batch: 8\n")
    recipe = FINE_TUNING | {"length": "12 epochs", "temperature": 0.1}
    write(params_of({"alike": entry("sentence_encoder", "alike", recipe, positive="1")}, {"second": "second"}))
    splits = {"train": records(160, 0), "valid": records(40, 1), "test": records(50, 2)}
    write_prepared(layout.corpus("alike"), "labelled", splits)
    make_checkpoint([*THINGS, *THINGS.values()])
    return tmp_path


@pytest.mark.usefixtures("workspace")
def test_planted_partners_are_found_and_measured(tmp_path: Path) -> None:
    train.main("alike")
    evaluate.main("alike")
    assert (layout.plots("alike") / "words.png").is_file()
    metrics, test = read_json(layout.metrics("train", "alike")), read_json(layout.metrics("evaluate", "alike"))["test"]
    assert metrics["valid_accuracy_at_1"] > metrics["untrained_valid_accuracy_at_1"]
    assert test["accuracy_at_1"] > 0.6
    assert test["spearman"] > 0.3
    chosen = Baseline("sentence_encoder", "alike", None, "", {"positive": "1"})
    (tfidf,) = baselines(chosen, PreparedCorpus(layout.corpus("alike")), Resampling(20, 0.95, 0))
    assert tfidf.metrics["accuracy_at_1"] < test["accuracy_at_1"]

    config, module = model_folder.load(layout.model("alike"))
    predictor = Predictor("alike", config, module, load(layout.model("alike") / "tokenizer"))
    near, far = predictor.predict(["big loud film\thuge noisy movie", "big loud film\ticy shiny story"])
    assert near["cosine"] > far["cosine"]
    assert near.keys() == Predictor.example(config).keys()
    found = predictor.vectors(["big film", "plot"])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)

    from transformers import AutoModel, AutoTokenizer

    export(layout.model("alike"), tmp_path / "there", "alike")
    theirs, tokenizer = (one.from_pretrained(tmp_path / "there") for one in (AutoModel, AutoTokenizer))
    batch = tokenizer(["big film", "plot"], padding=True, return_tensors="pt")
    real = batch["attention_mask"].unsqueeze(-1)
    with torch.inference_mode():
        pooled = (theirs(**batch).last_hidden_state * real).sum(1) / real.sum(1)
    np.testing.assert_allclose((pooled / pooled.norm(dim=1, keepdim=True)).numpy(), found, atol=1e-4)


@pytest.mark.usefixtures("workspace")
def test_single_texts_are_refused() -> None:
    texts = [{"text": "a film", "label": "1"}] * 5
    folder = layout.corpus("alike")
    folder.rename(folder.with_name("old"))
    write_prepared(folder, "labelled", {"train": texts, "valid": texts, "test": texts})
    with pytest.raises(UserError, match=r"name the second text's column, reader\.second"):
        train.main("alike")


class Fixed(torch.nn.Module):
    """Gives the first two tokens of a text as a vector of length 1."""

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(tokens[:, :2].float() - 3, dim=1)


def slow(first: np.ndarray, second: np.ndarray, pairs: list[tuple[str, str]], temperature: float) -> float:
    """Both directions, pair by pair."""
    total = 0.0
    for a, b in ((first, second), (second, first)):
        for i, one in enumerate(pairs):
            kept = [j for j, other in enumerate(pairs) if j == i or not set(one) & set(other)]
            exponents = [math.exp(float(a[i] @ b[j]) / temperature) for j in kept]
            total -= math.log(exponents[kept.index(i)] / sum(exponents))
    return total / 2


class Letters:
    """Two ids for each text, between a begin and an end."""

    bos_id, eos_id = 0, 9

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(text[0]) - 96, len(text)] for text in texts]


def test_the_loss_beside_a_slow_one() -> None:
    pairs = [("a", "bb"), ("ccc", "d"), ("a", "ee"), ("f", "ccc"), ("gg", "d"), ("hhhh", "i")]
    made = [{"text": one, "second": other} for one, other in pairs]
    tokenizer: Any = Letters()
    task = ContrastiveTask(Fixed(), *(Pairs(made, tokenizer, 8, 6, 0) for _ in range(2)), temperature=0.3)
    batch = task.batch(0, 0, 1)
    assert {len(array) for array in batch.values()} == {1}  # no micro-batch can cut it
    tensors = {name: torch.as_tensor(array) for name, array in batch.items()}
    loss, count = task.loss_sum(task.module, tensors)
    sides = [np.array([[0, ord(text[0]) - 96] for text in side], dtype=float) - 3 for side in zip(*pairs, strict=True)]
    first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
    assert count == 6
    assert loss.item() == pytest.approx(slow(first, second, pairs, 0.3), rel=1e-5)
    (valid,) = task.validation_batches(0, 1)
    sums = task.validation_sums(task.module, {name: torch.as_tensor(array) for name, array in valid.items()})
    assert task.validation_metrics(torch.as_tensor(sums).tolist())["valid_loss"] == pytest.approx(loss.item() / 6)
    shares = [task.batch(0, rank, 2) for rank in range(2)]
    assert sum(share["texts"].shape[2] for share in shares) == 6


class _Alike(Predictor):
    """Gives a text's length and 1 as its vector."""

    def __init__(self) -> None:
        pass

    def vectors(self, texts: Any) -> Any:
        found = np.array([[len(text), 1.0] for text in texts])
        return found / np.linalg.norm(found, axis=1, keepdims=True)


class _Uses:
    def texts(self, given: list[str] | None) -> list[str]:
        return given or []

    def model(self, kind: str, name: str | None) -> _Alike:
        assert kind == "sentence_encoder"
        return _Alike()

    def show(self, lines: Any) -> None:
        print(*lines, sep="\n")


def test_the_command_shows_the_nearest_first() -> None:
    app: Any = typer.Typer()
    uses: Any = _Uses()
    command.add(app, uses)
    found = CliRunner().invoke(app, ["aaa", "b", "ccc", "ccc", "dd", "-n", "2"], catch_exceptions=False)
    assert found.stdout == "1.0000\tccc\n0.9899\tdd\n"
    found = CliRunner().invoke(app, ["aaa", "ccc", "--json"], catch_exceptions=False)
    assert json.loads(found.stdout) == {"text": "ccc", "cosine": pytest.approx(1.0)}
