"""Taggers of whole words as models: the baselines' answers from a model folder, packaged; what their entry may say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import sha256_folder
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.rows import read_rows
from lexmill.kinds.tagger import markov_model, perceptron
from lexmill.kinds.tagger.predict import tag_sentences
from lexmill.kinds.tagger.whole_words import loaded, stored
from lexmill.models import folder as model_folder
from lexmill.models.common.chain import Chain, nats
from lexmill.registry import hugging_face, onnx_export
from lexmill.registry.loader import load_package
from lexmill.stages import baseline, evaluate, register, report, tokenizer, train
from tests.kinds.tagger.made_project import BIRNN, write_words

METHODS = ("hidden_markov_model", "averaged_perceptron")
CONFIG = {"kind": "tagger", "family": "word_features", "shape": {"n_feature": 1000}, "vocab_size": 9, "scheme": "none"}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.usefixtures("workspace")
def test_each_has_the_figures_of_its_baseline_and_a_package_that_tags(tmp_path: Path) -> None:
    tokenizer.main("words")
    baseline.main("tagger-names")
    beside = read_json(layout.metrics("baseline", "tagger-names"))
    for method in METHODS:
        write_words(method)
        train.main("ner")
        once = sha256_folder(layout.model("ner")), layout.curve("ner").read_bytes()
        train.main("ner")
        assert (sha256_folder(layout.model("ner")), layout.curve("ner").read_bytes()) == once
        trained = read_json(layout.metrics("train", "ner"))
        assert trained["valid_loss"] < math.log(5)
        assert trained["steps"] == (1 if method == "hidden_markov_model" else 5)

        evaluate.main("ner")
        found = read_json(layout.metrics("evaluate", "ner"))["test"]
        assert {key: found[key] for key in beside[method]} == beside[method]

        register.main("ner")
        package = load_package(layout.package("ner"))
        config, module = model_folder.load(layout.model("ner"))
        words = ["anna", "went", "in", "Ulm"]
        (tags,) = tag_sentences(module, package.tokenizer, [words], config, 100)
        (answer, empty) = package.predict(["anna went in Ulm", ""])
        assert (answer["words"], answer["tags"], empty["tags"]) == (words, tags, [])
        assert "by its letters" in (layout.package("ner") / "card.md").read_text(encoding="utf-8")
        with pytest.raises(UserError, match="has no counterpart in transformers"):
            hugging_face.export(layout.model("ner"), tmp_path / "hugging_face", "ner")
        with pytest.raises(UserError, match="looks whole words up, which ONNX does not do"):
            onnx_export._output(config, "it is a tagger")
    report.main()
    assert "averaged perceptron" in Path("reports/index.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("workspace")
def test_entities_can_be_learned_in_bioes_and_are_answered_in_iob2() -> None:
    write_words("hidden_markov_model", data={"bioes": True})
    tokenizer.main("words")
    train.main("ner")
    config = read_json(layout.model("ner") / "config.json")
    assert {"S-place", "E-person"} < set(config["tags"])
    evaluate.main("ner")
    rows = read_rows(layout.predictions("ner") / "rows.jsonl")
    assert {tag for row in rows for tag in row["predicted"]} == {"O", "B-person", "I-person", "B-place"}
    records = PreparedCorpus(layout.corpus("names")).records("test")
    assert [row["tags"] for row in rows] == [record["tags"] for record in records]


def test_a_model_worked_by_hand() -> None:
    """Two tags, three words: the tables as counted, and the tags of `b a` by all four sequences."""
    train_set = [(["a", "b"], ["X", "Y"]), (["b", "b"], ["X", "Y"])]
    config = {**CONFIG, "tags": ["X", "Y"], "method": "hidden_markov_model"}
    module = stored(markov_model.learn(train_set), config)
    assert config["shape"] == {"n_feature": 2}
    # X has two words once each, Y one twice; a third of what is kept back is for each word, the unknown one too.
    a, b, unknown = (math.exp(module.scores[module.encoder.row(word), 0]) for word in ("a", "b", "c"))
    assert (a, b, unknown) == pytest.approx(((1 + 2 / 3) / 4, (1 + 2 / 3) / 4, (2 / 3) / 4))
    assert math.exp(module.scores[module.encoder.row("b"), 1]) == pytest.approx((2 + 1 / 3) / 3)
    # After the start always X, after X always Y, after Y the end; each of the three follows as often.
    transitions, first, last = (one.exp().numpy() for one in module.chain or ())
    assert first == pytest.approx([(2 + 1 / 3) / 3, (1 / 3) / 3])
    assert transitions[0] == pytest.approx([(1 / 3) / 3, (2 + 1 / 3) / 3])
    assert last == pytest.approx([(1 / 3) / 3, (2 + 1 / 3) / 3])
    chances = {}
    for one in (0, 1):
        for other in (0, 1):
            emitted = math.exp(
                module.scores[module.encoder.row("b"), one] + module.scores[module.encoder.row("a"), other]
            )
            chances[one, other] = first[one] * transitions[one, other] * last[other] * emitted
    best = max(chances, key=lambda pair: chances[pair])
    model = loaded(module, config)
    assert model.tag(["b", "a"]) == [config["tags"][i] for i in best] == ["X", "Y"]
    assert model.nats(["b", "a"], [0, 1]) == pytest.approx(-math.log(chances[0, 1] / sum(chances.values())))


def drawn(count: int, most: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Sentences of words below `most`, with tags that say little of them."""
    generator = np.random.default_rng(seed)
    return [
        ([str(i) for i in generator.integers(most, size=6)], [str(tag) for tag in generator.choice([*"XYZ"], 6)])
        for _ in range(count)
    ]


def test_a_stored_model_gives_the_tags_and_the_loss_of_the_learned_one() -> None:
    train_set = drawn(30, 20, 0)
    for method, learned in (
        ("hidden_markov_model", markov_model.learn(train_set)),
        ("averaged_perceptron", perceptron.learn(train_set, train_set, seed=0)),
    ):
        config: dict[str, Any] = {**CONFIG, "tags": list(learned.tags), "method": method}
        again = loaded(stored(learned, config), config)
        for words, tags in drawn(40, 30, 1):  # a third of the words are unknown
            assert again.tag(words) == learned.tag(words)
            numbers = [learned.tags.index(tag) for tag in tags]
            assert again.nats(words, numbers) == learned.nats(words, numbers)


def test_the_loss_of_each_by_another_way() -> None:
    train_set = drawn(9, 5, 0)
    words, tags = ["3", "new", "1"], [2, 0, 1]
    markov = markov_model.learn(train_set)
    chain = Chain(*(torch.from_numpy(one) for one in (markov.transitions, markov.begin, markov.end)))
    emissions = torch.from_numpy(markov.emissions[[markov.row(word) for word in words]])
    assert markov.nats(words, tags) == pytest.approx(float(nats(emissions[None], torch.tensor([tags]), chain)))
    other = perceptron.learn(train_set, train_set, seed=0)
    own, total = perceptron.of_words(words), 0.0
    before = ["<s2>", "<s1>", *other.tag(words)]
    for place, word in enumerate(words):
        features = [*own[place], *perceptron.of_tags(before[: place + 2], word)]
        scores = sum(other.weights[other.row(one)] for one in features)
        total -= float(torch.log_softmax(torch.tensor(scores), 0)[tags[place]])
    assert other.nats(words, tags) == pytest.approx(total)


def test_of_more_features_those_that_say_most_are_kept() -> None:
    train_set = [(["the", "mill", "turns"], ["D", "N", "V"])] * 3
    learned = perceptron.learn(train_set, train_set, seed=0)
    config: dict[str, Any] = {**CONFIG, "tags": list(learned.tags), "method": "averaged_perceptron"}
    whole = stored(learned, dict(config))
    says = np.abs(learned.weights).max(axis=1)
    assert len(whole.scores) - 1 == (says > 0).sum() < len(learned.features)
    few = {**config, "shape": {"n_feature": 3}}
    module = stored(learned, few)
    kept = {one for one in learned.features if module.encoder.row(one) < 3}
    assert len(kept) == 3
    assert sorted(says[learned.row(one)] for one in kept) == pytest.approx(sorted(says)[-3:])
    for one in learned.features:
        wanted = learned.weights[learned.row(one)] if one in kept else np.zeros(3)
        assert module.scores[module.encoder.row(one)].numpy() == pytest.approx(wanted)


@pytest.mark.usefixtures("workspace")
def test_what_does_not_go_together_is_said() -> None:
    for method in METHODS:
        write_words(method, data={"pieces": "mean", "max_tokens": 64})
        with pytest.raises(UserErrors) as caught:
            params.load()
        for key in ("max_tokens", "pieces"):
            assert f"models.ner.data.{key}: {method} reads whole words and sentences; leave it out" in str(caught.value)
    write_words("gradient")
    with pytest.raises(UserErrors, match="family 'word_features' has counts and no gradient; set hidden_markov_model"):
        params.load()
    write_words("hidden_markov_model", family="birnn", shape=BIRNN)
    with pytest.raises(UserErrors, match="family: hidden_markov_model reads words, not tokens; take word_features"):
        params.load()


def test_a_config_without_its_choices_is_refused() -> None:
    found = model_folder.config_errors({**CONFIG, "tags": ["X"], "method": "guess"})
    assert found == ["method: one of hidden_markov_model, averaged_perceptron is expected, got 'guess'"]
