"""What packaged models answer."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lexmill.base.errors import UserError, UserErrors
from lexmill.decoding.predictor import Predictor
from lexmill.params import Params
from lexmill.registry import package
from lexmill.registry.loader import load_package
from lexmill.registry.served import as_texts

from .conftest import make

TEXTS = ["Good day", "", "a much longer line than the others, to be padded against", "Good day", " "]


@pytest.fixture(params=["gpt", "tickets", "en_de"])
def model(request: pytest.FixtureRequest, params: Params, tmp_path: Path) -> Predictor:
    make(params, tmp_path, request.param)
    return load_package(package.write(params, request.param, tmp_path))


def _settings(model: Predictor) -> dict[str, Any]:
    return {"max_tokens": 6} if model.config["kind"] == "language_model" else {}


def test_one_answer_a_text_and_none_depends_on_the_others(model: Predictor) -> None:
    together = model.predict(TEXTS, _settings(model))
    assert len(together) == len(TEXTS)
    for i in (0, 1, 2, 4):  # text 3 is text 0 again: a language model draws anew for it
        (alone,) = model.predict([TEXTS[i]], _settings(model))
        if model.config["kind"] == "classifier":
            assert alone["label"] == together[i]["label"]
            assert alone["scores"] == pytest.approx(together[i]["scores"], rel=1e-5)
        else:
            assert alone == together[i]
    assert model.predict([]) == []


def test_the_answers_have_the_shape_of_their_kind(model: Predictor) -> None:
    answers = model.predict(TEXTS, _settings(model))
    if model.config["kind"] == "classifier":
        for answer in answers:
            assert set(answer) == {"label", "score", "scores"}
            assert answer["score"] == max(answer["scores"].values()) == answer["scores"][answer["label"]]
    else:
        assert all(isinstance(answer, str) for answer in answers)
    if model.config["kind"] == "translator":
        assert [answer == "" for answer in answers] == [False, True, False, False, True]
        assert model.predict(["Good day"], {"beam_size": 1}) != [""]


def test_a_seed_gives_the_same_text_again_and_another_another(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    model = load_package(package.write(params, "gpt", tmp_path))
    draws = [model.predict(["ROMEO"], {"seed": seed, "max_tokens": 20}) for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    greedy = [model.predict(["ROMEO"], {"seed": seed, "temperature": 0, "max_tokens": 5}) for seed in (1, 2)]
    assert greedy[0] == greedy[1]


def test_a_precision_is_that_of_all_weights_and_of_what_is_written(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    folder = package.write(params, "gpt", tmp_path)
    for precision in ("float32", "bfloat16"):
        model = load_package(folder, precision)
        assert {str(value.dtype) for value in model.module.parameters()} == {f"torch.{precision}"}
        assert len(model.predict(["ROMEO", "JULIET:"], {"max_tokens": 8, "seed": 3})) == 2


@pytest.mark.parametrize(
    ("name", "settings", "errors"),
    [
        (
            "gpt",
            {"max_token": 3, "top_k": 1.5},
            ["max_token: a language model takes no such param, did you", "top_k: 1.5"],
        ),
        ("gpt", {"temperature": -1.0, "top_p": 0.0}, ["temperature: -1.0", "top_p: 0.0"]),
        ("gpt", {"min_p": 1.5, "repetition_penalty": 0.0}, ["min_p: 1.5", "repetition_penalty: 0.0"]),
        ("gpt", {"stop": "x"}, ["stop: expected a list, got 'x'"]),
        ("gpt", {"stop": np.array(["x", ""])}, ["stop: an empty text"]),
        ("gpt", {"seed": "x"}, ["seed: 'x' is not a number"]),
        ("en_de", {"beam_size": 0}, ["beam_size: 0 is too small; at least 1"]),
        ("tickets", {"beam_size": 2}, ["beam_size: a classifier takes no such param"]),
    ],
)
def test_wrong_settings_are_reported_all_at_once(
    name: str, settings: dict[str, Any], errors: list[str], params: Params, tmp_path: Path
) -> None:
    make(params, tmp_path, name)
    model = load_package(package.write(params, name, tmp_path))
    with pytest.raises(UserErrors) as caught:
        model.predict(["text"], settings)
    for error in errors:
        assert any(message.startswith(error) for message in caught.value.errors), caught.value.errors


def test_a_stream_is_what_predict_gives_and_its_errors_come_at_once(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    model = load_package(package.write(params, "gpt", tmp_path))
    settings = {"max_tokens": np.int64(50), "temperature": 1.5, "stop": np.array(["e", "\n"]), "seed": 5}
    for prompt in ("ROMEO", "", "é"):
        assert ["".join(model.stream(prompt, settings))] == model.predict([prompt], settings)
    with pytest.raises(UserErrors, match="top_k: -1"):
        model.stream("a", {"top_k": -1})
    with pytest.raises(UserError, match="input 0 is no text but int"):
        model.stream(3)  # type: ignore[arg-type]


def test_what_is_no_text_is_named(model: Predictor) -> None:
    with pytest.raises(UserError, match="input 1 is no text but float"):
        model.predict(["fine", float("nan")])  # type: ignore[list-item]
    with pytest.raises(UserError, match="not Unicode"):
        model.predict(["fine", "\ud800"])


@pytest.mark.parametrize(
    "given",
    [
        ["a", ""],
        ("a", ""),
        pd.DataFrame(["a", ""]),
        pd.DataFrame({"text": ["a", ""]}),
        pd.Series(["a", ""]),
        np.array(["a", ""]),
        np.array([["a"], [""]], dtype=object),
    ],
    ids=lambda given: type(given).__name__,
)
def test_texts_come_in_many_wrappings(given: Any) -> None:
    texts = as_texts(given)
    assert texts == ["a", ""]
    assert all(type(text) is str for text in texts)


def test_one_text_alone_and_two_columns() -> None:
    assert as_texts("abc") == ["abc"]
    with pytest.raises(UserError, match="the input has 2 columns"):
        as_texts(pd.DataFrame({"a": ["x"], "b": ["y"]}))
