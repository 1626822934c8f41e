"""A model of every kind, loaded by MLflow from its own files and served over HTTP, answers as its predictor does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
import torch
from starlette.testclient import TestClient

from lexmill import models
from lexmill.base import plugins, storage
from lexmill.data.conversations import CHAT_TEMPLATE
from lexmill.models import folder as model_folder
from lexmill.registry import package, serving
from lexmill.registry.loader import load_package
from lexmill.registry.logged_model import LOADER, signature

from .conftest import byte_tokenizer, letters_tokenizer
from .plain import BERT

DECODER = {"n_layer": 1, "n_head": 2, "d_model": 16, "d_ffn": 24, "context": 64}
TRANSFORMER = {"encoder_layers": 1, "decoder_layers": 1, "n_head": 2, "d_model": 16, "d_ffn": 32, "max_positions": 64}
ON_TEXT = {"max_tokens": 16, "dropout": 0.0}
ANSWERED = json.dumps({"question": "who", "context": "a bee"})
MESSAGES = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
# Family, its shape, what the config has besides, texts, params of `predict`.
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[str], dict[str, Any]]] = {
    "answerer": (
        "bert",
        BERT,
        {"spans": True, "threshold": None, "max_tokens": 16, "stride": 4, "max_question": 4, "max_answer": 3},
        [ANSWERED],
        {},
    ),
    "chat_model": ("decoder", DECODER, {"chat_template": CHAT_TEMPLATE}, ["hi"], {"max_tokens": 4, "seed": 1}),
    "classifier": ("bert", BERT, ON_TEXT | {"labels": ["a", "b"]}, ["a bee", "see"], {}),
    "encoder": (
        "bert",
        BERT,
        {"pretraining": {"objective": "masked", "pairs": "none"}, "max_tokens": 16},
        ["a [MASK]"],
        {"top": 2},
    ),
    "language_model": ("decoder", DECODER, {}, ["To be", ""], {"max_tokens": 4, "seed": 1}),
    "multilabel_classifier": ("bert", BERT, ON_TEXT | {"labels": ["a", "b"], "thresholds": [0.1, 0.9]}, ["a bee"], {}),
    "regressor": ("bert", BERT, ON_TEXT | {"labels": ["number"], "levels": [], "target": "number"}, ["a", "bee"], {}),
    "reward_model": ("decoder", DECODER, {"reward": True}, [MESSAGES], {}),
    "sentence_encoder": ("bert", BERT, {"embedding": "mean", "positive": "", "max_tokens": 16}, ["a\tbee"], {}),
    "tagger": (
        "bert",
        BERT,
        ON_TEXT | {"tags": ["O", "B-x", "I-x"], "scheme": "iob2", "pieces": "first", "head": "crf"},
        ["a bee", ""],
        {"split_punctuation": True},
    ),
    "translator": (
        "transformer",
        TRANSFORMER,
        {"evaluate": {"beam": {"beam_size": 2, "max_length_ratio": 1.0, "max_length_extra": 4}}},
        ["Good day", ""],
        {"beam_size": 2},
    ),
    "word_vectors": ("skip_gram", models.family("skip_gram").tiny, {}, ["a"], {"count": 2}),
}


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """The scoring application of a model of a kind, which MLflow loaded from what it keeps of it."""
    monkeypatch.setenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT", "true")
    kind = request.param
    family, shape, more, _, _ = KINDS[kind]
    inside = tmp_path / "package" / package.MODEL
    letters = models.family(family).role == "encoder"
    size = (letters_tokenizer if letters else byte_tokenizer)(inside / model_folder.TOKENIZER)
    config = {"kind": kind, "family": family, "shape": shape, "vocab_size": size, "corpus": "texts", **more}
    torch.manual_seed(0)
    model_folder.save(inside, config, models.build(config))
    description = {"kind": kind, "name": kind, "config": config}
    whole = {**description, "fingerprint": package._fingerprint(inside.parent, description)}
    storage.write_json(inside.parent / package.DESCRIPTION, whole)
    mlflow.pyfunc.save_model(
        str(tmp_path / "mlflow"), loader_module=LOADER, data_path=str(inside.parent), signature=signature(whole)
    )
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "mlflow"))
    return TestClient(serving.application(loaded), raise_server_exceptions=False)


def test_each_kind_is_here() -> None:
    assert KINDS.keys() == set(plugins.names("kinds"))


@pytest.mark.parametrize("served", KINDS, indirect=True)
def test_it_is_served_as_it_answers(served: TestClient, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    *_, texts, params = KINDS[request.node.callspec.params["served"]]
    wanted = load_package(tmp_path / "package").predict(texts, params)
    content = {"inputs": texts, **({"params": params} if params else {})}
    answer = served.post("/invocations", content=json.dumps(content), headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["predictions"] == json.loads(json.dumps(wanted))
