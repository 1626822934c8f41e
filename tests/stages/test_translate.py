"""Pairs that a translator writes: back-translation, distillation, and a model that learns from them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lexmill import models, tokenizers
from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.translated import Translated, write_translated
from lexmill.data.mixture import open_train
from lexmill.decoding.settings import BeamSearch, Sampling
from lexmill.kinds.translator.predict import translate_lines
from lexmill.models import folder as model_folder
from lexmill.params.corpora import Translation
from lexmill.stages import encode, mix, train, translate
from lexmill.tokenizers import kinds, saving
from tests.kinds.translator.test_training import MODEL, PARAMS
from tests.support.prepared import write_prepared
from tests.support.small_project import whole

FILE = {"kind": "file", "paths": ["a", "b"]}
BEAM = {"beam_size": 2, "min_length_ratio": 0.5, "max_length_ratio": 0.9, "max_length_extra": 0}
BACK = {"model": "reverse", "corpus": "news", "writes": "source", "held_out": "pairs", "tag": "<"}


def words(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choice("abcd") for _ in range(draw.randint(5, 9))) for _ in range(count)]


def pairs(count: int, seed: int) -> list[dict[str, str]]:
    return [{"source": word, "target": word[::-1]} for word in words(count, seed)]


def choices(**translations: Any) -> dict[str, Any]:
    """The translator `toy` of test_training, one of the other direction, and German text."""
    other = {
        "kind": "parallel",
        "languages": ["de", "en"],
        "source": FILE,
        "reader": PARAMS["corpora"]["pairs"]["reader"],
    }
    text = {"kind": "text", "languages": ["de"], "source": FILE, "reader": {"format": "text", "document": "file"}}
    learner = {**MODEL, "data": {**MODEL["data"], "train": "both"}, "evaluate": {"beam": BEAM}}
    return {
        **PARAMS,
        "corpora": {**PARAMS["corpora"], "turned": other, "news": text},
        "models": {
            "reverse": {**MODEL, "data": {**MODEL["data"], "corpus": "turned"}, "evaluate": {"beam": BEAM}},
            "toy": learner,
        },
        "translations": translations or {"back": BACK},
        "mixtures": {"both": {"tokenizer": "letters", "members": {"pairs": 2.0, "back": 1.0}}},
    }


def write_params(data: dict[str, Any]) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(whole(data)))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n")
    Path("xavier.yaml").write_text("name: xavier\nembedding_std: 0\n")
    write_params(choices())
    folder = layout.tokenizer("letters")
    folder.mkdir(parents=True)
    saving.save(kinds.assemble("character", kinds.character_model(list("abcd <")), lowercase=False), folder)
    splits = {"train": pairs(40, 1), "valid": pairs(8, 2), "test": [{"source": "abcd", "target": "dcba"}]}
    write_prepared(layout.corpus("pairs"), "parallel", splits, ["en", "de"])
    text = {"text": "\n".join(["dcba", "", "  ", *words(30, 3), "abcdabcdabcdabcd"]) + "\n"}
    write_prepared(layout.corpus("news"), "text", {"train": [text], "valid": [{"text": "a"}]}, ["de"])
    tokenizer = tokenizers.load(folder)
    config = {
        "kind": "translator",
        "family": "transformer",
        "shape": MODEL["shape"],
        "vocab_size": tokenizer.vocab_size,
    }
    torch.manual_seed(1)
    model_folder.save(layout.model("reverse"), config, models.build(config))
    shutil.copytree(folder, layout.model("reverse") / "tokenizer")
    return tmp_path


def made(name: str = "back") -> list[dict[str, Any]]:
    return list(PreparedCorpus(layout.corpus(name)).records("train"))


def test_each_line_but_the_held_out_and_the_too_long_becomes_a_pair_with_the_models_own_translation(workspace):
    translate.main("back")
    corpus, (text,) = PreparedCorpus(layout.corpus("back")), PreparedCorpus(layout.corpus("news")).records("train")
    assert (corpus.kind, corpus.languages, list(corpus.manifest["splits"])) == ("parallel", ("en", "de"), ["train"])
    _, module = model_folder.load(layout.model("reverse"))
    tokenizer = tokenizers.load(layout.tokenizer("letters"))
    lines = [line for line in text["text"].split("\n") if line.strip()]
    expected = []
    for number, line in enumerate(text["text"].split("\n"), 1):
        if line.strip() and line != "dcba":
            (one,) = translate_lines(module, tokenizer, [line], BeamSearch(**BEAM), 1000)
            if not one.truncated and one.text.strip():
                expected.append((f"train0:{number}", f"< {one.text.strip()}", line))
    assert [(pair["id"], pair["source"], pair["target"]) for pair in made()] == expected
    metrics = storage.read_json(layout.metrics("translate", "back"))
    assert metrics["raw"] == len(lines) == 32
    assert metrics["removed"]["in_held_out"] == metrics["removed"]["longer_than_the_model_reads"] == 1
    assert metrics["used"] + sum(metrics["removed"].values()) == metrics["raw"]


def test_drawn_translations_are_those_of_the_seed_and_a_side_of_pairs_is_distilled(workspace: Path) -> None:
    drawn = {**BACK, "tag": "", "temperature": 1.0, "seed": 3}
    teacher = {"model": "toy", "corpus": "pairs", "side": "source", "writes": "target", "held_out": "pairs"}
    shutil.copytree(layout.model("reverse"), layout.model("toy"))
    write_params(choices(back=drawn, distilled=teacher))
    translate.main("back")
    _, module = model_folder.load(layout.model("reverse"))
    tokenizer = tokenizers.load(layout.tokenizer("letters"))
    first, drawing = made(), Sampling(temperature=1.0, seed=3)
    for pair in first[:5]:
        (one,) = translate_lines(module, tokenizer, [pair["target"]], BeamSearch(**BEAM), 1000, sampling=drawing)
        assert pair["source"] == one.text.strip()
    translate.main("back")
    assert made() == first
    translate.main("distilled")
    real = {record["id"]: record for record in PreparedCorpus(layout.corpus("pairs")).records("train")}
    assert made("distilled")
    for pair in made("distilled"):
        assert pair["source"] == real[pair["id"]]["source"] != pair["target"]


def test_a_sentence_that_comes_again_is_drawn_anew(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translate, "CHUNK", 2)
    splits = {"train": [{"text": "abca\n" * 12}], "valid": [{"text": "a"}]}
    shutil.rmtree(layout.corpus("news"))
    write_prepared(layout.corpus("news"), "text", splits, ["de"])
    write_params(choices(back={**BACK, "tag": "", "temperature": 20.0, "seed": 3}))
    translate.main("back")
    first = [pair["source"] for pair in made()]
    assert len(set(first)) > 6
    translate.main("back")
    assert [pair["source"] for pair in made()] == first


def test_a_translator_learns_from_a_mixture_of_real_and_written_pairs_and_validates_on_the_real(
    workspace: Path,
) -> None:
    translate.main("back")
    for corpus in ("pairs", "back"):
        encode.main(f"{corpus}-letters")
    mix.main("both")
    source = open_train(layout.tokens("both", "letters"), "source")
    target = open_train(layout.tokens("both", "letters"), "target")
    tokenizer = tokenizers.load(layout.tokenizer("letters"))
    texts = [tokenizer.decode(side.document(i).tolist()) for side in (source, target) for i in range(len(source))]
    records = [*made(), *PreparedCorpus(layout.corpus("pairs")).records("train")]  # by name
    assert texts == [record[side] for side in ("source", "target") for record in records]
    train.main("toy")
    metrics = storage.read_json(layout.metrics("train", "toy"))
    assert metrics["train_pairs"] + metrics["train_dropped"] == len(records)
    assert metrics["valid_targets"] == sum(len(word["target"]) + 1 for word in pairs(8, 2))
    assert metrics["epochs_back"] > 0 < metrics["epochs_pairs"]

    write_params(
        {**choices(), "models": {**choices()["models"], "toy": {**MODEL, "data": {**MODEL["data"], "train": "back"}}}}
    )
    train.main("toy")  # distilled pairs alone
    assert storage.read_json(layout.metrics("train", "toy"))["valid_targets"] == metrics["valid_targets"]


def test_nothing_left_is_an_error(workspace: Path) -> None:
    corpus, held_out = PreparedCorpus(layout.corpus("news")), PreparedCorpus(layout.corpus("pairs"))
    choice = Translation(**BACK)
    with pytest.raises(
        UserError, match=r"none of its 32 sentences gave a pair; in_held_out 1, .*empty_translations 31"
    ):
        write_translated(
            layout.corpus("back"), choice, corpus, held_out, lambda some: [Translated(" ", False) for _ in some]
        )
    assert not layout.corpus("back").exists()


def test_a_pool_is_translated_in_the_order_of_length_and_written_in_that_of_the_corpus(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lexmill.corpora.preparing.translated.POOL", 7)
    corpus, held_out = PreparedCorpus(layout.corpus("news")), PreparedCorpus(layout.corpus("pairs"))
    seen = []

    def upper(some: list[str]) -> list[Translated]:
        seen.append([len(text) for text in some])
        return [Translated(text.upper(), False) for text in some]

    metrics, _ = write_translated(layout.corpus("back"), Translation(**BACK), corpus, held_out, upper)
    assert metrics["used"] == 31
    assert all(lengths == sorted(lengths) and len(lengths) <= 7 for lengths in seen)
    assert [pair["source"] for pair in made()] == [f"< {pair['target'].upper()}" for pair in made()]
    numbers = [int(pair["id"].partition(":")[2]) for pair in made()]
    assert numbers == sorted(numbers)
