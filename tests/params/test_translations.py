"""`translations` of params.yaml: what follows from them, and what is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill import params
from lexmill.config.mixtures import with_mixtures
from lexmill.report.graph import depths, stages
from tests.support.small_project import errors_of, whole_with

ROOT = Path(__file__).parents[2]


def choices(**changes: Any) -> dict[str, Any]:
    """The committed choices with a German to English model, German text, and a model that learns from both."""
    data: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    corpora, models = data["corpora"], data["models"]
    corpora["turned"] = copy.deepcopy(corpora["home_assistant"]) | {"languages": ["de", "en"]}
    corpora["news"] = copy.deepcopy(corpora["shakespeare"]) | {"languages": ["de-AT"]}
    models["de_en"] = copy.deepcopy(models["en_de"])
    models["de_en"]["data"]["corpus"] = "turned"
    models["student"] = copy.deepcopy(models["en_de"])
    models["student"]["data"]["train"] = "distilled"
    models["en_de"]["data"]["train"] = "both"
    back = {"model": "de_en", "corpus": "news", "writes": "source", "held_out": "home_assistant", "tag": "<bt>"}
    distilled = {"model": "en_de", "corpus": "home_assistant", "side": "source", "writes": "target"}
    data["translations"] = {"back": back, "distilled": {**distilled, "held_out": "home_assistant"}}
    members = {"home_assistant": 0.5, "back": 0.5}
    data["mixtures"] = {"both": {"tokenizer": "home_assistant_bpe", "members": members}}
    return whole_with(data, changes)


def errors(**changes: Any) -> list[str]:
    return errors_of(choices(**changes))


def test_what_the_stages_read_follows_from_the_translations() -> None:
    assert errors() == []
    found = params.parse(choices())
    tokens = "artifacts/tokens/{}-home_assistant_bpe"
    assert {"back-home_assistant_bpe", "distilled-home_assistant_bpe"} <= found.encodings.keys()
    assert "both-home_assistant_bpe" not in found.encodings  # a mixture is put together, not encoded
    assert (found.inputs["en_de"].data, found.inputs["en_de"].valid) == (
        tokens.format("both"),
        tokens.format("home_assistant"),
    )
    assert found.inputs["student"].data == tokens.format("distilled")
    assert vars(found.translation_inputs["back"]) == {
        "kind": "translator",
        "family": "transformer",
        "model": "de_en",
        "corpus": "news",
        "held_out": "home_assistant",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"translations__back__model": "de_em"}, "translations.back.model: there is no model 'de_em', did you mean"),
        ({"translations__back__model": "gpt"}, "translations.back.model: 'gpt' is a language model, which translates"),
        ({"translations__back__corpus": "home_assistant"}, "'home_assistant' is a parallel corpus, a text one is"),
        ({"translations__back__side": "target"}, "translations.back.corpus: 'news' is a text corpus, a parallel one"),
        ({"translations__back__held_out": "news"}, "translations.back.held_out: 'news' is a text corpus"),
        ({"translations__back__corpus": "shakespeare"}, "its language is en, but the model 'de_en' translates de"),
        (
            {"translations__back__writes": "target"},
            "translations.back.held_out: its pairs are en to de, but those of this translation would be de to en",
        ),
        ({"translations__back__held_out": "turned"}, "its pairs are de to en, but those of this translation"),
        ({"translations__back__seed": 3}, "translations.back.temperature: at 0 nothing is drawn"),
        ({"translations__back__tag": " <bt>"}, "translations.back.tag: ' <bt>' must be printable"),
        ({"translations__news": {}}, "translations.news: corpora has an entry of that name"),
        ({"mixtures__both__members": {"home_assistant": 1, "shakespeare": 1}}, "'shakespeare' is a text corpus"),
        ({"models__student__data__train": "distiled"}, "there is no corpus, mixture or translation 'distiled', did"),
        ({"models__gpt__data__train": "back"}, "models.gpt.data.train: there is no corpus or mixture 'back'"),
        (
            {"models__student__data__corpus": "turned"},
            "the translation 'distilled' leaves out the test sentences of 'home_assistant', but the model is tested on",
        ),
        ({"models__de_en__data__train": "back"}, "models.de_en.data.train: it learns from itself: de_en -> de_en"),
        (
            {"models__de_en__start": "artifacts/models/en_de"},
            "models.en_de.data.train: it learns from itself: en_de -> de_en -> en_de",
        ),
        (
            {"models__en_de__recipe__subword_alpha": 0.1},
            "models.en_de.recipe.subword_alpha: 'home_assistant_bpe' is of kind bpe, this is for unigram",
        ),
        (
            {"models__en_de__recipe__subword_alpha": 0.1, "models__en_de__recipe__subword_dropout": 0.1},
            "subword_dropout is for another kind of tokenizer",
        ),
    ],
)
def test_what_does_not_fit_together_is_reported(changes: dict[str, Any], message: str) -> None:
    assert any(message in error for error in errors(**changes)), errors(**changes)


def test_the_stage_is_between_two_trainings_and_the_graph_has_no_circle() -> None:
    data = choices()
    dag = with_mixtures((ROOT / "dvc.yaml").read_text(encoding="utf-8"), data["mixtures"])
    found = {stage.address: set(stage.needs) for stage in stages(yaml.safe_load(dag), data)}
    assert {"train@de_en", "prepare@news", "prepare@home_assistant"} <= found["translate@back"]
    assert "translate@back" in found["encode@back-home_assistant_bpe"]
    assert found["mix-both"] >= {"encode@back-home_assistant_bpe", "encode@home_assistant-home_assistant_bpe"}
    assert found["train@en_de"] >= {"mix-both", "encode@home_assistant-home_assistant_bpe"}
    assert found["train@student"] >= {"encode@distilled-home_assistant_bpe", "encode@home_assistant-home_assistant_bpe"}
    assert depths(stages(yaml.safe_load(dag), data)).keys() == found.keys()
