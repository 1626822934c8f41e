"""The table of all classifiers: which presets it has, and a line from metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from benchmarks.classifiers import TABLE
from benchmarks.preset_table import ROOT, stages_of
from lexmill import params
from lexmill.kinds.classifier import Classifier


def test_it_has_every_preset_of_the_kind_on_the_default_reviews() -> None:
    files = (ROOT / "conf" / "model").glob("*.yaml")
    found = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    ours = {name for name, entry in found.items() if entry.get("kind") == "classifier"}
    by_hand = {name for name in ours if "/checkpoint/roberta" in str(found[name]["defaults"])}  # nothing fetches it
    assert set(TABLE.presets) == ours - by_hand
    assert by_hand == {"roberta"}


def test_its_params_hold_only_what_the_presets_read() -> None:
    data = TABLE.params(["naive_bayes", "minilm_probe"], ["models.naive_bayes.recipe.alpha=0.5"])
    checked = params.parse(data)
    assert all(isinstance(model, Classifier) for model in checked.models.values())
    assert data["models"]["naive_bayes"]["recipe"]["alpha"] == 0.5
    assert (list(data["corpora"]), list(data["tokenizers"])) == (["movie_reviews"], ["reviews_words"])
    assert stages_of(data) == [
        ("fetch", "movie_reviews"),
        ("checkpoint", "minilm"),
        ("prepare", "movie_reviews"),
        ("tokenizer", "reviews_words"),
        ("import_tokenizer", "minilm"),
    ]


def test_all_presets_can_read_the_corpus_of_another_workspace(tmp_path: Path) -> None:
    data = TABLE.params(["text_cnn"], [])
    theirs = {"mine": data["corpora"]["movie_reviews"]}
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump({"corpora": theirs}), encoding="utf-8")
    data = TABLE.params(["text_cnn", "minilm"], [], file)
    checked = params.parse(data)
    assert {model.data.corpus for model in checked.models.values() if isinstance(model, Classifier)} == {"mine"}
    assert (data["corpora"], data["tokenizers"]["reviews_words"]["corpus"]) == (theirs, "mine")
    file.write_text(yaml.safe_dump({"corpora": theirs | {"more": theirs["mine"]}}), encoding="utf-8")
    with pytest.raises(ValueError, match="one corpus of labelled texts is expected, got mine, more"):
        TABLE.params(["text_cnn"], [], file)


def test_a_line_has_the_metrics_of_both_stages(tmp_path: Path) -> None:
    interval = {f"{key}{end}": 0.5 for key in ("accuracy", "macro_f1") for end in ("", "_low", "_high")}
    files = {
        "metrics/evaluate/one.json": {"test": interval | {"accuracy": 0.8125}},
        "metrics/train/one.json": {"parameters": 12345},
        ".lexmill/metrics/train-one.json": {"seconds": 1.26},
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    head = ["| preset | family | accuracy | macro F1 | parameters | seconds |", "|---|---|---|---|---:|---:|"]
    line = "| one | bag | 0.812 [0.500, 0.500] | 0.500 [0.500, 0.500] | 12,345 | 1.3 |"
    assert TABLE.lines(tmp_path, {"one": "bag"}) == [*head, line]
