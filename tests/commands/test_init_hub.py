"""`lexmill init ... hub:NAME`: a data set's columns, labels and splits are found, and fetched so by the stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from lexmill import params
from lexmill.base.errors import UserError
from lexmill.commands.init import app
from lexmill.commands.init.hub import fetched, name_of, source_of
from lexmill.commands.init.reading import Reading
from lexmill.corpora.fetching import pins
from lexmill.nightly import looking
from lexmill.params.corpora import HubSource
from tests.support.fetching import bring

NAMES = ["bad", "good"]


@pytest.fixture
def data_set(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a folder of the hub's form, whose test split has no labels, as GLUE's."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(project / "cache"))
    monkeypatch.setenv("HF_HOME", str(project / "cache"))
    monkeypatch.chdir(project)
    features = datasets.Features({"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=NAMES)})
    sizes = {"train": 60, "validation": 20, "test": 20}
    (project / "films").mkdir()
    for split, count in sizes.items():
        rows = [{"sentence": f"{split} {i}", "label": -1 if split == "test" else i % 2} for i in range(count)]
        datasets.Dataset.from_list(rows, features=features).to_parquet(str(project / "films" / f"{split}.parquet"))
    return project


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def test_its_splits_are_taken_and_labels_have_their_names(data_set: Path) -> None:
    options = ["--text", "sentence", "--label", "label", "--test", "validation"]
    done = run("classify", "hub:films", *options)
    assert done.exit_code == 0, done.output
    corpus = yaml.safe_load((data_set / "conf" / "corpus" / "films.yaml").read_text(encoding="utf-8"))
    wanted = {"kind": "hub", "dataset": "./films", "subset": None, "revision": None, "splits": ["train", "validation"]}
    assert corpus["source"] == wanted
    assert corpus["splits"]["files"] == {"test": ["./validation.jsonl"]}
    assert list((data_set / ".lexmill").glob("init-*")) == []
    source = params.load(data_set / "params.yaml").corpora["films"].source
    assert isinstance(source, HubSource)
    assert not pins.needs_pin(source)
    found = bring(source, data_set)
    assert sorted(found) == ["train.jsonl", "validation.jsonl"]
    assert json.loads(found["train.jsonl"].split(b"\n")[1]) == {"sentence": "train 1", "label": "good"}


def test_without_options_all_of_its_splits_are_taken(data_set: Path) -> None:
    folder = data_set / "here"
    folder.mkdir()
    source, files, reading = fetched(HubSource("hub", "films"), Reading({}), folder, data_set)
    assert source.splits == ("train", "validation", "test")
    assert files == [folder / "train.jsonl"]
    assert (reading.valid, reading.test) == ([str(folder / "validation.jsonl")], [str(folder / "test.jsonl")])


def test_records_without_a_label_are_named_with_their_file(data_set: Path) -> None:
    done = run("classify", "hub:films", "--text", "sentence", "--label", "label")
    assert done.exit_code != 0
    assert str(done.exception).startswith("./films: test.jsonl:1: ")
    assert not (data_set / "conf" / "corpus" / "films.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hub:films", "more.csv"), "give it alone"),
        (("hub:",), "name the data set after hub:"),
        (("hub:films", "--test", "dev"), "./films has no split 'dev'; known: test, train, validation"),
        (("hub:films", "--valid", "test", "--test", "test"), "the split 'test' is given twice"),
    ],
)
def test_errors_are_one_sentence(data_set: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run("classify", *arguments)
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert not (data_set / "conf" / "corpus" / "films.yaml").exists()


def test_a_data_set_of_the_hub_is_fixed_at_its_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(looking, "hub", lambda source, root: {"revision": f"commit of {source.revision}"})
    found = source_of([Path("hub:owner/name:part@v2")], tmp_path)
    assert found == HubSource("hub", "owner/name", "part", "commit of v2")
    assert source_of([Path("hub:owner/name")], tmp_path).revision == "commit of None"
    assert name_of(Path("hub:owner/name:part@v2")) == "name"
