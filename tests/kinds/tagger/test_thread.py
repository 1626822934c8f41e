"""Entities of a made language: prepared, learned, evaluated, packaged; a stopped training ends like a straight one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.storage import sha256_folder
from lexmill.commands.evaluate import _corpus
from lexmill.commands.init.reading import Reading
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.rows import read_rows
from lexmill.kinds.tagger.predict import tag_sentences
from lexmill.kinds.tagger.task import TaggingTask
from lexmill.models import folder as model_folder
from lexmill.params.readers import ConllReader, TaggedRecordsReader
from lexmill.registry.loader import load_package
from lexmill.stages import baseline, evaluate, import_tokenizer, register, report, tokenizer, train
from tests.kinds.tagger.made_project import FILLER, NAMES, PLACES, conll, write_params
from tests.support.tiny_bert import make_tiny_bert


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def model_parts() -> tuple[Any, tokenizers.Tokenizer]:
    """The trained network and its tokenizer."""
    folder = layout.model("ner")
    return model_folder.load(folder)[1].eval(), tokenizers.load(folder / model_folder.TOKENIZER)


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(("head", "family", "bioes"), [("crf", "birnn", True), ("softmax", "bert", False)])
def test_entities_are_learned_and_measured(head: str, family: str, bioes: bool) -> None:
    write_params(head, family, data={"bioes": bioes})
    if family == "bert":
        make_tiny_bert(layout.checkpoint("tiny"), [*NAMES, *PLACES, *FILLER])
        import_tokenizer.main("tiny")
    else:
        tokenizer.main("words")
    train.main("ner")
    trained = read_json(layout.metrics("train", "ner"))
    good = 0.7 if family == "bert" else 0.9  # a BERT of random weights learns little from 90 sentences
    assert trained["valid_entity_f1"] > good
    assert trained["train_sentences"] == 90
    assert trained["train_words"] == sum(
        len(record["words"]) for record in PreparedCorpus(layout.corpus("names")).records("train")
    )
    config = read_json(layout.model("ner") / "config.json")
    prefixes = "BIES" if bioes else "BI"
    assert config["tags"] == ["O", *(f"{one}-{kind}" for kind in ("person", "place") for one in prefixes)]

    evaluate.main("ner")
    assert (layout.plots("ner") / "words.png").is_file()
    found = read_json(layout.metrics("evaluate", "ner"))
    rows = read_rows(layout.predictions("ner") / "rows.jsonl")
    assert len(rows) == 30
    pairs = [pair for row in rows for pair in zip(row["tags"], row["predicted"], strict=True)]
    assert found["test"]["accuracy"] == pytest.approx(np.mean([a == b for a, b in pairs]))
    assert found["test"]["entity_f1"] > good
    assert found["test"]["entity_f1_low"] <= found["test"]["entity_f1"] <= found["test"]["entity_f1_high"]
    assert sum(found["confusion"].values()) == len(pairs)
    assert set(found["per_class"]) == {"person", "place"}
    assert found["tests"]["test_hard"]["sentences"] == 10
    assert {tag for row in rows for tag in row["predicted"]} <= {"O", "B-person", "I-person", "B-place", "I-place"}

    baseline.main("tagger-names")
    beside = read_json(layout.metrics("baseline", "tagger-names"))
    assert set(beside) - {"measured_on"} == {
        "most_frequent_tag",
        "dictionary",
        "hidden_markov_model",
        "averaged_perceptron",
    }
    assert beside["most_frequent_tag"]["entity_f1"] == 0.0 < beside["dictionary"]["entity_f1"] < good
    assert beside["averaged_perceptron"]["entity_f1"] > 0.9

    register.main("ner")
    package = load_package(layout.package("ner"))
    (answer,) = package.predict(["anna went in ulm"])
    wanted = tag_sentences(*model_parts(), [["anna", "went", "in", "ulm"]], config, 100)
    assert (answer["words"], answer["tags"]) == (["anna", "went", "in", "ulm"], wanted[0])
    assert type(package).example(package.config).keys() == answer.keys()
    card = (layout.package("ner") / "card.md").read_text(encoding="utf-8")
    assert "gives each word of a sentence a tag" in card
    assert "F1 of entities" in card
    own = {**read_json(layout.package("ner") / "package.json")}
    Path("more.iob2").write_text(conll(5, 9), encoding="utf-8")
    corpus = _corpus(own, [Path("more.iob2")], Reading({}), None, Path())
    assert isinstance(corpus.reader, ConllReader)
    assert (corpus.kind, corpus.reader.scheme, corpus.unit) == ("tagged", "iob2", "sentence")
    Path("more.jsonl").write_text('{"words": ["a"], "tags": ["O"]}', encoding="utf-8")
    other = _corpus(own, [Path("more.jsonl")], Reading({}), None, Path())
    assert isinstance(other.reader, TaggedRecordsReader)
    assert other.reader.scheme == "iob2"

    report.main()
    page = Path("reports/index.html").read_text(encoding="utf-8")
    for wanted_text in ("Each type of entity, or tag", "Sentences and tags", "tagged sentences", "averaged perceptron"):
        assert wanted_text in page


@pytest.mark.usefixtures("workspace")
def test_a_stopped_training_ends_like_a_straight_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer.main("words")
    write_params("crf", "birnn", length="1 epochs", head_dropout=0.3)
    train.main("ner")
    straight = sha256_folder(layout.model("ner")), layout.curve("ner").read_bytes()
    Path("execution.yaml").write_text("threads: 1\ncheckpoint_seconds: 0\n", encoding="utf-8")
    original = TaggingTask.batch

    def stop(task: TaggingTask, step: int, rank: int, world: int) -> Any:
        if step == 7:
            raise RuntimeError("pulled plug")
        return original(task, step, rank, world)

    with monkeypatch.context() as patch:
        patch.setattr(TaggingTask, "batch", stop)
        with pytest.raises(RuntimeError, match="pulled plug"):
            train.main("ner")
    train.main("ner")
    assert (sha256_folder(layout.model("ner")), layout.curve("ner").read_bytes()) == straight
