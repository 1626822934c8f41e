"""A regressor learns a planted number, as one or by levels, and gives it unscaled; what it cannot learn is said."""

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
from lexmill.kinds.regressor import command
from lexmill.kinds.regressor.baselines import baselines
from lexmill.kinds.regressor.predict import Predictor
from lexmill.kinds.regressor.task import RegressionTask
from lexmill.models import folder as model_folder
from lexmill.stages import evaluate, train
from lexmill.tokenizers import load
from tests.support.labelled_model import FINE_TUNING, begin, entry, make_checkpoint, params_of, read_json, write
from tests.support.prepared import write_prepared

FILLER = ["film", "plot", "actor", "scene", "music", "long", "the", "a"]
MARKS = {"vile": -20.0, "dull": -10.0, "fine": 10.0, "grand": 30.0}


def records(count: int, seed: int) -> list[dict[str, str]]:
    """Texts whose number hangs on one word."""
    random = np.random.default_rng(seed)
    made = []
    for i in range(count):
        mark = list(MARKS)[i % 4]
        words = [*random.choice(FILLER, random.integers(1, 9)), mark]
        random.shuffle(words)
        made.append({"text": " ".join(words), "label": f"{MARKS[mark]:g}"})
    return made


def write_params(**recipe: Any) -> None:
    write(params_of({"rating": entry("regressor", "ratings", FINE_TUNING | {"length": "12 epochs"} | recipe)}))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    begin(tmp_path, monkeypatch)
    splits = {"train": records(120, 0), "valid": records(32, 1), "test": records(40, 2)}
    write_prepared(layout.corpus("ratings"), "labelled", splits)
    write_params()
    make_checkpoint([*FILLER, *MARKS])
    return tmp_path


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("target", ["number", "level"])
def test_the_planted_number_is_learned_and_measured(target: str) -> None:
    write_params(target=target)
    train.main("rating")
    trained = read_json(layout.metrics("train", "rating"))
    assert trained["valid_absolute_error"] < 6
    evaluate.main("rating")
    found = read_json(layout.metrics("evaluate", "rating"))["test"]
    assert found["mean_absolute_error"] < 6
    assert found["pearson"] > 0.9
    assert ("level_accuracy" in found) == (target == "level")
    assert all((layout.plots("rating") / name).is_file() for name in ("numbers.png", "words.png"))
    config, module = model_folder.load(layout.model("rating"))
    predictor = Predictor("rating", config, module, load(layout.model("rating") / "tokenizer"))
    answers = predictor.predict(["the grand film", "vile"])
    assert answers[0]["number"] == pytest.approx(30, abs=12)
    assert answers[1]["number"] == pytest.approx(-20, abs=12)
    assert answers[0].keys() == Predictor.example(config).keys()
    if target == "level":
        assert [answer["level"] for answer in answers] == [30.0, -20.0]
    corpus = PreparedCorpus(layout.corpus("ratings"))
    must_beat = {one.name: one.metrics for one in baselines(None, corpus, Resampling(20, 0.95, 0))}  # type: ignore[arg-type]
    assert must_beat["median"]["mean_absolute_error"] == pytest.approx(17.5)
    assert must_beat["tfidf_ridge"]["pearson"] > 0.9


@pytest.mark.usefixtures("workspace")
def test_the_head_reads_the_states_as_the_recipe_says() -> None:
    write_params(length="1 epochs", pooling="attention")
    train.main("rating")
    config, module = model_folder.load(layout.model("rating"))
    assert config["pooling"] == "attention"
    assert "attention.weight" in dict(module.named_parameters())
    evaluate.main("rating")
    assert read_json(layout.metrics("evaluate", "rating"))["test"]["items"] == 40


def task_of(numbers: list[float], levels: list[float]) -> RegressionTask:
    torch.manual_seed(0)

    class Fixed(torch.nn.Module):
        """Gives the first tokens of a text as outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(1, 1)

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return tokens[:, : max(1, len(levels) - 1)].float()

    side = (TextBatches([[i, 2 * i] for i in range(len(numbers))], 8, 0, 0), np.array(numbers))
    return RegressionTask(Fixed(), side, side, levels)


def sums_of(task: RegressionTask) -> dict[str, float]:
    batches = [{k: torch.as_tensor(v) for k, v in rows.items()} for rows in task.validation_batches(0, 1)]
    return task.validation_metrics(
        torch.stack([torch.as_tensor(task.validation_sums(task.module, batch)) for batch in batches]).sum(0).tolist()
    )


def test_the_loss_of_a_number_by_hand() -> None:
    found = sums_of(task_of([1.0, 3.0, 8.0], []))  # mean 4, deviation sqrt(26 / 3); outputs 0, 1, 2
    deviation = np.sqrt(26 / 3)
    z = (np.array([1.0, 3.0, 8.0]) - 4) / deviation
    assert found["valid_loss"] == pytest.approx(np.mean((np.arange(3) - z) ** 2) / 2, rel=1e-6)
    assert found["valid_absolute_error"] == pytest.approx(
        np.mean(np.abs(np.arange(3) * deviation + 4 - np.array([1.0, 3.0, 8.0])))
    )


def test_the_loss_of_levels_by_hand() -> None:
    found = sums_of(task_of([1.0, 2.0, 5.0], [1.0, 2.0, 5.0]))  # outputs (0, 0), (1, 2), (2, 4)
    above = np.array([[0, 0], [1, 0], [1, 1]])
    logits = np.array([[0, 0], [1, 2], [2, 4]])
    chances = 1 / (1 + np.exp(-logits))
    nats = -(above * np.log(chances) + (1 - above) * np.log(1 - chances)).sum(1)
    numbers = 1 + chances @ np.array([1, 3])
    assert found["valid_loss"] == pytest.approx(nats.mean(), rel=1e-6)
    assert found["valid_absolute_error"] == pytest.approx(np.abs(numbers - np.array([1, 2, 5])).mean())


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("label", "recipe", "message"),
    [
        ("good", {}, "the label 'good' is no number"),
        ("nan", {}, "the label 'nan' is no number"),
        (None, {}, "all numbers of train are 1"),
        (None, {"target": "level"}, "1 different numbers"),
    ],
)
def test_what_cannot_be_learned_is_said(label: str | None, recipe: dict[str, str], message: str) -> None:
    texts = [{"text": "a film", "label": "1"}] * 9
    shown = [*texts, {"text": "a plot", "label": label}] if label else texts
    folder = layout.corpus("ratings")
    folder.rename(folder.with_name("old"))
    write_prepared(folder, "labelled", {"train": shown, "valid": texts, "test": texts})
    write_params(**recipe)
    with pytest.raises(UserError, match=message):
        train.main("rating")


class _Rates:
    def texts(self, given: list[str] | None) -> list[str]:
        return given or []

    def model(self, kind: str, name: str | None) -> _Rates:
        assert kind == "regressor"
        return self

    def predict(self, texts: list[str]) -> list[dict[str, float]]:
        return [{"number": len(text) / 2, "level": 3.0} for text in texts]

    def show(self, lines: Any) -> None:
        print(*lines, sep="\n")


def test_the_command_gives_a_line_for_each_text() -> None:
    app: Any = typer.Typer()
    uses: Any = _Rates()
    command.add(app, uses)
    found = CliRunner().invoke(app, ["abc", "ab"], catch_exceptions=False)
    assert found.stdout == "1.5\t3\n1\t3\n"
    found = CliRunner().invoke(app, ["abc", "--json"], catch_exceptions=False)
    assert json.loads(found.stdout) == {"number": 1.5, "level": 3.0}
