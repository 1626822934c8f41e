"""Long texts in windows: nothing is skipped, a text counts once, and its output is the mean over its windows."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lexmill.base import layout
from lexmill.base.errors import UserError, UserErrors
from lexmill.data.texts import Read, TextBatches, read, windows
from lexmill.decoding.whole_texts import by_text, outputs
from lexmill.kinds.classifier.attribution import contributions, log_odds, words
from lexmill.kinds.classifier.predict import Predictor, classify_texts
from lexmill.models import folder as model_folder
from lexmill.models.bert.model import Bert
from lexmill.models.bert.shape import Shape
from lexmill.models.common.heads import PooledClassifier
from lexmill.models.input_embeddings import embedding_of
from lexmill.params import load as load_params
from lexmill.params.models import Model
from lexmill.stages import evaluate, train
from lexmill.tokenizers import imported, load
from tests.support.labelled_model import (
    FILLER,
    FINE_TUNING,
    SHAPE,
    begin,
    entry,
    make_checkpoint,
    params_of,
    read_json,
    write,
)
from tests.support.prepared import write_prepared
from tests.support.small_project import ROOT
from tests.support.tiny_bert import make_tiny_bert


@given(st.integers(0, 200), st.integers(1, 30), st.data())
def test_windows_reach_every_token_and_only_the_last_comes_sooner(length: int, room: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(1, room))
    begins = windows(length, room, step)
    assert {i for begin in begins for i in range(begin, min(begin + room, length))} == set(range(length))
    assert begins[:-1] == [step * i for i in range(len(begins) - 1)]
    assert all(begin < after for begin, after in pairwise(begins))
    assert begins[-1] == max(0, length - room)  # full, where the text is long enough


COUNTS = [1, 3, 1, 2, 5, 1, 1]


def batches(batch_size: int = 3) -> TextBatches:
    rows = [[text + 1, window + 1] for text, count in enumerate(COUNTS) for window in range(count)]
    return TextBatches(rows, batch_size, 0, 0, COUNTS)


def test_an_epoch_has_one_window_of_each_text_and_k_epochs_have_all_of_its_k() -> None:
    made = batches()
    assert made.steps_per_epoch == 3
    assert made.epoch(6) == 2
    seen = Counter[tuple[int, int]]()
    for epoch in range(30):  # all counts divide it
        texts = []
        for place in range(3):
            batch = made.batch(3 * epoch + place)
            texts += batch.index.tolist()
            assert [row[0] - 1 for row in batch.tokens.tolist()] == batch.index.tolist()
            seen.update((text, window) for text, window in batch.tokens.tolist())
        assert sorted(texts) == list(range(len(COUNTS)))
    assert seen == {(text + 1, i + 1): 30 // count for text, count in enumerate(COUNTS) for i in range(count)}


@given(st.integers(1, 20), st.lists(st.integers(1, 6), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_an_evaluation_batch_has_all_windows_of_its_texts(batch_size: int, counts: list[int]) -> None:
    rows = [[text + 1] * 4 if count > 1 else [text + 1] for text, count in enumerate(counts) for _ in range(count)]
    found = []
    for batch in TextBatches(rows, batch_size, 0, 0, counts).evaluation_batches():
        values, first = by_text(torch.from_numpy(batch.tokens[:, :1]).double(), torch.from_numpy(batch.index))
        texts = batch.index[first.numpy()]
        assert values[:, 0].tolist() == [text + 1 for text in texts]
        assert len(batch.index) <= batch_size or len(texts) == 1
        found += texts.tolist()
    assert sorted(found) == list(range(len(counts)))


class Sums(nn.Module):
    """Two outputs: the sum of the tokens, and how many they are."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(1))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return torch.stack([(tokens * mask).sum(1), mask.sum(1)], dim=1).float()


@pytest.mark.parametrize("batch_tokens", [1, 10, 1000])
def test_the_output_of_a_text_is_the_mean_over_its_windows(batch_tokens: int) -> None:
    texts = Read([[1, 2], [3, 4, 5], [6, 7, 8], [2, 2, 2], [9]], [1, 3, 1])
    wanted = [[3, 2], [(12 + 21 + 6) / 3, 3], [9, 1]]
    assert outputs(Sums(), texts, batch_tokens).tolist() == wanted


LATE = {"fine": "positive", "dull": "negative"}


def records(count: int, seed: int) -> list[dict[str, str]]:
    """Texts whose label hangs on one word behind the 12th."""
    random = np.random.default_rng(seed)
    made = []
    for i in range(count):
        mark = list(LATE)[i % 2]
        text = [*random.choice(FILLER, 12 + random.integers(0, 4)), mark, *random.choice(FILLER, random.integers(0, 3))]
        made.append({"text": " ".join(text), "label": LATE[mark]})
    return made


def write_params(kind: str, recipe: dict[str, Any], **data: Any) -> None:
    whole = recipe if "method" in recipe else FINE_TUNING | recipe
    write(params_of({"long": entry(kind, "reviews", whole, max_tokens=10, **data)}))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    begin(tmp_path, monkeypatch)
    splits = {"train": records(160, 0), "valid": records(30, 1), "test": records(40, 2)}
    write_prepared(layout.corpus("reviews"), "labelled", splits)
    write_params("classifier", {})
    make_checkpoint([*FILLER, *LATE])
    return tmp_path


WINDOWS: dict[str, Any] = {"long_texts": "windows", "stride": 4}
ENOUGH = {"length": "16 epochs", "validate_every": "4 epochs"}


def trained(kind: str, recipe: dict[str, Any], **data: Any) -> dict[str, Any]:
    write_params(kind, recipe, **data)
    train.main("long")
    evaluate.main("long")
    found: dict[str, Any] = read_json(layout.metrics("evaluate", "long"))["test"]
    return found


@pytest.mark.usefixtures("workspace")
def test_a_label_behind_max_tokens_is_learned_from_windows_and_not_from_a_cut() -> None:
    assert trained("classifier", {"length": "8 epochs"})["accuracy"] < 0.7
    assert "train_texts_in_windows" not in read_json(layout.metrics("train", "long"))
    assert trained("classifier", ENOUGH | {"answer_accuracy": 0.9}, **WINDOWS)["accuracy"] > 0.95
    measured = read_json(layout.metrics("train", "long"))
    assert measured["train_texts_in_windows"] == measured["train_texts"] == 160
    assert measured["valid_accuracy"] > 0.9
    assert measured["valid_texts"] == 30

    config, module = model_folder.load(layout.model("long"))
    tokenizer = load(layout.model("long") / "tokenizer")
    assert config["stride"] == 4
    assert isinstance(module, PooledClassifier)
    texts = [records(1, 9)[0]["text"], "fine film", " ".join(["film"] * 30 + ["dull"])]
    together = Predictor("long", config, module, tokenizer).predict(texts)
    for text, answer in zip(texts, together, strict=True):
        ids = tokenizer.encode(text)
        begins = sorted({*range(0, max(1, len(ids) - 8), 4), max(0, len(ids) - 8)})
        rows = [[tokenizer.bos_id, *ids[i : i + 8], tokenizer.eos_id] for i in begins]
        with torch.no_grad():
            logits = [module(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.bool))[0] for row in rows]
        wanted = (sum(logits[1:], logits[0]) / len(logits)).softmax(0)
        assert list(answer["scores"].values()) == pytest.approx(wanted.tolist(), abs=1e-5)
        (alone,) = classify_texts(module, tokenizer, [text], config, 1)
        assert alone.tolist() == pytest.approx(list(answer["scores"].values()), abs=1e-6)

    # The word that decided is shaded, wherever it stands.
    added = words(module, tokenizer, texts[2], config["labels"].index("negative"), config)
    assert added is not None
    assert len(added) == 31
    assert max(range(31), key=lambda i: added[i][1]) == 30


@pytest.mark.usefixtures("workspace")
def test_labels_behind_max_tokens_are_learned() -> None:
    assert trained("multilabel_classifier", ENOUGH, **WINDOWS)["micro_f1"] > 0.9
    assert read_json(layout.metrics("train", "long"))["train_texts_in_windows"] == 160


@pytest.mark.usefixtures("workspace")
def test_a_linear_probe_reads_the_mean_features_of_windows() -> None:
    write_params("classifier", {"method": "linear_probe", "l2": 0.01}, **WINDOWS)
    train.main("long")
    config, module = model_folder.load(layout.model("long"))
    valid = records(30, 1)
    tokenizer = load(layout.model("long") / "tokenizer")
    chances = classify_texts(module, tokenizer, [record["text"] for record in valid], config, 4096)
    right = [config["labels"].index(record["label"]) for record in valid]
    nats = -np.log(chances[np.arange(30), right]).mean()
    assert read_json(layout.metrics("train", "long"))["valid_loss"] == pytest.approx(nats, abs=1e-5)


@pytest.mark.usefixtures("workspace")
def test_a_number_behind_max_tokens_is_learned() -> None:
    numbers = {"positive": "2", "negative": "-2"}
    splits = {
        split: [record | {"label": numbers[record["label"]]} for record in records(count, seed)]
        for seed, (split, count) in enumerate({"train": 160, "valid": 30, "test": 40}.items())
    }
    layout.corpus("reviews").rename("old")
    write_prepared(layout.corpus("reviews"), "labelled", splits)
    assert trained("regressor", ENOUGH, **WINDOWS)["pearson"] > 0.9


def test_contributions_of_windows_add_up_to_the_change_of_the_mean_answer() -> None:
    torch.manual_seed(0)
    module = PooledClassifier(Bert(Shape(**SHAPE), 30), 3, 0.0).eval()
    rows = [[2, 9, 14, 22, 3], [2, 14, 22, 8, 3], [2, 22, 8, 7, 3]]
    found = contributions(module, rows, 2, frozenset({2, 3}))
    assert found is not None
    assert found.shape == (3, 5)
    mask = torch.ones(3, 5, dtype=torch.bool)
    embedding = embedding_of(module)
    with torch.no_grad():
        whole_answer = log_odds(module(torch.tensor(rows), mask).mean(0, keepdim=True), 2)
        start = embedding(torch.tensor(rows))
        start[:, 1:4] = 0
        hook = embedding.register_forward_hook(lambda *_: start)
        nothing = log_odds(module(torch.tensor(rows), mask).mean(0, keepdim=True), 2)
        hook.remove()
    assert found.sum().item() == pytest.approx((whole_answer - nothing).item(), abs=0.02)


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("data", "recipe", "message"),
    [
        ({"long_texts": "windows", "stride": 9}, {}, r"models\.long\.data\.stride: a window has room for 8 tokens"),
        ({"stride": 4}, {}, r"models\.long\.data\.stride: long texts are cut; for windows set long_texts: windows"),
        (WINDOWS, {"method": "nearest_neighbours"}, "nearest_neighbours stores one state of each text; set cut"),
    ],
)
def test_what_does_not_fit_is_said(data: dict[str, Any], recipe: dict[str, Any], message: str) -> None:
    write_params("classifier", recipe, **data)
    with pytest.raises(UserErrors, match=message):
        load_params(Path("params.yaml"))


@pytest.mark.usefixtures("workspace")
def test_pairs_have_no_windows() -> None:
    texts = [{"text": "a film", "second": "the plot", "label": label} for label in LATE.values()]
    layout.corpus("reviews").rename("old")
    write_prepared(layout.corpus("reviews"), "labelled", dict.fromkeys(("train", "valid", "test"), texts))
    write_params("classifier", {}, **WINDOWS)
    with pytest.raises(UserError, match="windows are of one text each, and this corpus has pairs; set long_texts: cut"):
        train.main("long")


def test_half_a_window_is_the_stride_where_none_is_given(tmp_path: Path) -> None:
    make_tiny_bert(tmp_path / "bert", ["film"])
    imported.import_tokenizer(tmp_path / "bert", tmp_path / "tokenizer")
    found = read(load(tmp_path / "tokenizer"), ["film " * 11, ""], {"max_tokens": 8, "stride": 3})
    assert found.counts == [3, 1]
    assert [len(row) for row in found.rows] == [8, 8, 8, 2]
    assert found.rows[3] == [2, 3]


def test_a_bag_reads_a_long_text_at_once() -> None:
    entry = yaml.safe_load((ROOT / "conf" / "model" / "naive_bayes.yaml").read_text(encoding="utf-8"))
    errors: list[str] = []
    del entry["defaults"]
    assert Model.convert(entry, "models.bag", errors) is not None
    assert Model.convert(entry | {"data": entry["data"] | WINDOWS}, "models.bag", errors) is None
    assert errors == ["models.bag.data.long_texts: a bag reads a text of any length; set cut, and raise max_tokens"]
