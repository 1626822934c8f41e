"""Planted words give their labels, from the prepared corpus to the command; the loss beside its definition."""

from __future__ import annotations

import json
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
from lexmill.data.texts import TextBatches
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.multilabel_classifier import command
from lexmill.kinds.multilabel_classifier.baselines import baselines
from lexmill.kinds.multilabel_classifier.predict import Predictor
from lexmill.kinds.multilabel_classifier.task import MultiLabelTask
from lexmill.models import folder as model_folder
from lexmill.params import Baseline
from lexmill.stages import evaluate, train
from lexmill.tokenizers import load
from tests.support.labelled_model import FINE_TUNING, begin, entry, make_checkpoint, params_of, read_json, write
from tests.support.prepared import write_prepared

FILLER = ["film", "plot", "scene", "music", "the"]
MARKS = {"loud": "sound", "bright": "light", "cold": "air"}


def records(count: int, seed: int) -> list[dict[str, str]]:
    """Texts with a label for each of three words."""
    random = np.random.default_rng(seed)
    made = []
    for i in range(count):
        marks = [mark for mark in MARKS if random.random() < 0.4]
        words = [*random.choice(FILLER, random.integers(1, 5)), *marks, str(i)]
        random.shuffle(words)
        made.append({"text": " ".join(words), "label": ";".join(MARKS[mark] for mark in marks) or "none"})
    return made


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    begin(tmp_path, monkeypatch)
    write(params_of({"senses": entry("multilabel_classifier", "senses", FINE_TUNING | {"length": "12 epochs"})}))
    splits = {"train": records(160, 0), "valid": records(40, 1), "test": records(50, 2)}
    write_prepared(layout.corpus("senses"), "labelled", splits)
    make_checkpoint([*FILLER, *MARKS])
    return tmp_path


@pytest.mark.usefixtures("workspace")
def test_planted_labels_are_learned_and_measured() -> None:
    train.main("senses")
    evaluate.main("senses")
    assert (layout.plots("senses") / "words.png").is_file()
    found = read_json(layout.metrics("evaluate", "senses"))
    assert found["test"]["micro_f1"] > 0.9
    assert set(found["per_class"]) == set(MARKS.values())
    config, module = model_folder.load(layout.model("senses"))
    assert config["labels"] == sorted(MARKS.values())
    assert len(config["thresholds"]) == 3
    predictor = Predictor("senses", config, module, load(layout.model("senses") / "tokenizer"))
    answers = predictor.predict(["the loud cold film", "the plot"])
    assert answers[0]["labels"] == ["air", "sound"]
    assert answers[1]["labels"] == []
    assert answers[0].keys() == Predictor.example(config).keys()

    chosen = Baseline("multilabel_classifier", "senses", None, "", {})
    corpus = PreparedCorpus(layout.corpus("senses"))
    must_beat = {one.name: one for one in baselines(chosen, corpus, Resampling(20, 0.95, 0))}
    assert must_beat["tfidf_logistic_regression"].metrics["micro_f1"] > 0.9
    given = {tuple(row["predicted"]) for row in must_beat["most_frequent_label"].rows}
    assert given in [{(label,)} for label in MARKS.values()]


@pytest.mark.usefixtures("workspace")
def test_a_corpus_without_labels_is_refused() -> None:
    texts = [{"text": "a film", "label": "none"}] * 5
    folder = layout.corpus("senses")
    folder.rename(folder.with_name("old"))
    write_prepared(folder, "labelled", {"train": texts, "valid": texts, "test": texts})
    with pytest.raises(UserError, match="no text has a label"):
        train.main("senses")


class Fixed(torch.nn.Module):
    """Gives the first three tokens of a text, less 2, as logits."""

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return tokens[:, :3].float() - 2


def test_the_loss_is_the_sum_over_labels_and_parts_keep_rows_together() -> None:
    ids = [[1, 2, 3], [4, 1, 2, 9, 9, 9, 9, 9], [2, 2, 5, 9], [3, 1, 1]]
    right = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    side = (TextBatches(ids, 4, 0, 0), right)
    task = MultiLabelTask(Fixed(), side, side)
    logits = np.array([row[:3] for row in ids]) - 2.0
    chances = 1 / (1 + np.exp(-logits))
    wanted = -(right * np.log(chances) + ~right * np.log(1 - chances)).sum()
    batch = task.batch(0, 0, 1)
    total = sum(
        task.loss_sum(task.module, {key: torch.as_tensor(value) for key, value in part.items()})[0].item()
        for part in task.parts(batch, 0)
    )
    assert total == pytest.approx(wanted, rel=1e-5)
    assert sum(len(part["labels"]) for part in task.parts(batch, 0)) == 4
    whole_batch = [{k: torch.as_tensor(v) for k, v in rows.items()} for rows in task.validation_batches(0, 1)]
    sums = torch.stack([torch.as_tensor(task.validation_sums(task.module, one)) for one in whole_batch]).sum(0)
    metrics = task.validation_metrics(sums.tolist())
    given = logits > 0
    assert metrics["valid_loss"] == pytest.approx(wanted / 4, rel=1e-5)
    assert metrics["valid_micro_f1"] == pytest.approx(2 * (given & right).sum() / (given.sum() + right.sum()))


class _Labels:
    def texts(self, given: list[str] | None) -> list[str]:
        return given or []

    def model(self, kind: str, name: str | None) -> _Labels:
        assert kind == "multilabel_classifier"
        return self

    def predict(self, texts: list[str]) -> list[dict[str, Any]]:
        return [{"labels": text.split(), "scores": {"a": 0.5}} for text in texts]

    def show(self, lines: Any) -> None:
        print(*lines, sep="\n")


def test_the_command_gives_a_line_for_each_text() -> None:
    app: Any = typer.Typer()
    uses: Any = _Labels()
    command.add(app, uses)
    assert CliRunner().invoke(app, ["a b", ""], catch_exceptions=False).stdout == "a\tb\n\n"
    found = CliRunner().invoke(app, ["a", "--json"], catch_exceptions=False)
    assert json.loads(found.stdout) == {"labels": ["a"], "scores": {"a": 0.5}}
