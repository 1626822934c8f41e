"""Pairs of texts: both sides are read, from the table to the answer, and none is lost where they are long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.texts import as_pairs, cut_pair, encode, of_record
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.classifier.baselines import baselines
from lexmill.kinds.classifier.predict import Predictor
from lexmill.models import folder as model_folder
from lexmill.models.bert.model import Bert
from lexmill.models.bert.shape import Shape
from lexmill.models.common.heads import PooledClassifier
from lexmill.params.readers import RecordsReader
from lexmill.stages import evaluate, fetch, prepare, train
from lexmill.tokenizers import load
from tests.support.labelled_model import (
    FILLER,
    FINE_TUNING,
    MARKS,
    SHAPE,
    begin,
    entry,
    make_checkpoint,
    params_of,
    read_json,
    write,
)

WORDS = [*FILLER, *MARKS]


def rows(count: int) -> list[dict[str, str]]:
    """Pairs that are labelled by whether both have the same first word."""
    random = np.random.default_rng(0)
    made = []
    for i in range(count):
        marks = random.choice(list(MARKS), 2)
        sides = [" ".join([mark, *random.choice(FILLER, random.integers(1, 4))]) for mark in marks]
        made.append({"one": sides[0], "other": f"{sides[1]} {i}", "same": "yes" if marks[0] == marks[1] else "no"})
    return made


def write_params(**recipe: Any) -> None:
    model = entry("classifier", "pairs", FINE_TUNING | {"length": "1 epochs"} | recipe)
    columns = {"text": "one", "second": "other", "label": "same"}
    source = {"kind": "file", "paths": ["pairs.jsonl"]}
    write(params_of({"same": model}, columns, source=source, splits={"valid": 0.2, "test": 0.2}))


def test_pairs_go_from_the_table_to_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, monkeypatch)
    write_params()
    lines = "".join(json.dumps(row) + "\n" for row in rows(200))
    Path("pairs.jsonl").write_text(lines, encoding="utf-8")
    fetch.main("pairs")
    prepare.main("pairs")
    corpus = PreparedCorpus(layout.corpus("pairs"))
    record = next(corpus.records("train"))
    assert {"text", "second", "label"} < record.keys()
    assert of_record(record) == (record["text"], record["second"])

    make_checkpoint(WORDS)
    train.main("same")
    config, module = model_folder.load(layout.model("same"))
    tokenizer = load(layout.model("same") / "tokenizer")
    assert config["separator"] == tokenizer.eos_id
    evaluate.main("same")
    measured = read_json(layout.metrics("evaluate", "same"))["test"]
    assert measured["items"] == corpus.count("test")
    assert " ||| " in read_json(layout.samples("same"))["samples"][0]["text"]

    predictor = Predictor("same", config, module, tokenizer)
    found = predictor.predict(["fine film\tfine plot", "fine plot\tfine film"])
    tokens = torch.tensor(encode(tokenizer, [("fine film", "fine plot")], 20))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    assert isinstance(module, PooledClassifier)
    encoder: Any = module.encoder
    ends = (tokens[0] == tokenizer.eos_id).nonzero()[:, 0]
    segments = (torch.arange(tokens.shape[1]) > ends[0]).long()[None]
    with torch.no_grad():
        wanted = module.head(encoder.hidden(tokens, mask, segments).mean(1)).softmax(1)[0].tolist()
    assert list(found[0]["scores"].values()) == pytest.approx(wanted, abs=1e-5)
    assert found[0]["scores"] != pytest.approx(found[1]["scores"], abs=1e-9)
    with pytest.raises(UserError, match="'fine film' is no pair of texts; write one tab"):
        predictor.predict(["fine film"])

    names = {one.name: one.metrics for one in baselines(None, corpus, Resampling(100, 0.95, 0))}  # type: ignore[arg-type]
    assert names.keys() == {"majority", "tfidf_logistic_regression", "tfidf_similarity"}
    assert names["tfidf_similarity"]["accuracy"] > names["majority"]["accuracy"]  # the first word may be shared


@given(st.integers(0, 30), st.integers(0, 30), st.integers(2, 25))
def test_both_sides_of_a_pair_stay(first: int, second: int, room: int) -> None:
    one, other = cut_pair(range(first), range(second), room)
    assert list(one) == list(range(len(one)))
    assert list(other) == list(range(len(other)))
    assert len(one) + len(other) == min(room, first + second)
    assert len(one) >= min(first, room // 2)
    assert len(other) >= min(second, room // 2)


def test_segments_begin_after_the_first_separator() -> None:
    module = PooledClassifier(Bert(Shape(**SHAPE), 20), 2, 0.0, separator=3)
    tokens = torch.tensor([[2, 7, 8, 3, 9, 3, 0], [2, 3, 9, 9, 9, 9, 3]])
    wanted = [[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1]]
    assert module._segments(tokens).tolist() == wanted


def test_what_is_no_pair_is_an_error() -> None:
    assert as_pairs(["a\tb", "\tb"]) == [("a", "b"), ("", "b")]
    with pytest.raises(UserError, match="one tab"):
        as_pairs(["a\tb\tc"])
    assert RecordsReader("jsonl", text="t", second="s").unfit("text") == [
        "second: only a labelled corpus has second texts, but kind is 'text'"
    ]
