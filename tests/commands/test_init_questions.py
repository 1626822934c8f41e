"""`lexmill init answer` for SQuAD's files and records, and `lexmill evaluate` on such files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lexmill import params
from lexmill.base.errors import UserError
from lexmill.commands.evaluate import _corpus
from lexmill.commands.init import app
from lexmill.commands.init.entry import located
from lexmill.commands.init.initialize import initialize
from lexmill.commands.init.reading import Reading
from lexmill.corpora.prepared import SPLITS, PreparedCorpus
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.small import linked
from lexmill.corpora.preparing.test_set import prepare_test_set
from lexmill.params.readers import QuestionsReader, SquadReader

COLUMNS: Mapping[str, str | None] = dict.fromkeys(("question", "context", "answers", "start", "id"))


def squad(path: Path, count: int, first: int = 0) -> Path:
    asked = [
        {
            "context": f"Mill {number} is old.",
            "qas": [{"id": f"q{number}", "question": "Which?", "answers": [{"text": f"{number}", "answer_start": 5}]}],
        }
        for number in range(first, first + count)
    ]
    path.write_text("\ufeff" + json.dumps({"data": [{"title": "Mills", "paragraphs": asked}]}), encoding="utf-8")
    return path


def rows(path: Path, count: int, **names: str) -> Path:
    keys = {key: names.get(key, key) for key in ("question", "context", "answers")}
    made = [
        {
            keys["question"]: "Which?",
            keys["context"]: f"Mill {i} is old.",
            keys["answers"]: f"{i}",
            "at": 5,
            "n": f"x{i}",
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in made), encoding="utf-8")
    return path


def made(project: Path) -> tuple[params.Params, PreparedCorpus]:
    choices = params.load(project / "params.yaml")
    (name,) = choices.corpora
    with linked(located(choices.corpora[name], project)) as source:
        prepare(name, choices.corpora[name], source, project / "corpus")
    return choices, PreparedCorpus(project / "corpus")


def test_files_of_squad_are_recognised_and_train(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, dev = squad(project / "train-v2.0.json", 60), squad(project / "dev-v2.0.json", 9, first=100)
    initialize("questions", [train], Reading(COLUMNS, test=[str(dev)]), name="mills", root=project)
    choices, corpus = made(project)
    assert isinstance(choices.corpora["mills"].reader, SquadReader)
    assert [one["id"] for one in corpus.records("test")] == [f"dev-v2.0:q{i}" for i in range(100, 109)]
    assert all(corpus.count(split) for split in SPLITS)
    (model,) = choices.models.values()
    assert (model.kind, model.data.corpus, model.start) == ("answerer", "mills", "artifacts/checkpoints/minilm")
    said = capsys.readouterr().err
    assert "mills: 60 records" in said
    assert "as given: test 9" in said


def test_records_name_their_keys(project: Path) -> None:
    file = rows(project / "a.jsonl", 40, question="q", context="text", answers="answer")
    columns = {"question": "q", "context": "text", "answers": "answer", "start": "at", "id": "n"}
    initialize("questions", [file], Reading(columns), root=project)
    choices, corpus = made(project)
    reader = choices.corpora["a"].reader
    assert isinstance(reader, QuestionsReader)
    assert (reader.file_format, reader.question, reader.start) == ("jsonl", "q", "at")
    found = [one for split in SPLITS for one in corpus.records(split)]
    assert len(found) == 40
    assert {one["answers"][0]["start"] for one in found} == {5}
    assert "a:x7" in {one["id"] for one in found}


def test_a_json_array_is_not_taken_for_squad(project: Path) -> None:
    file = project / "a.json"
    file.write_text(json.dumps([json.loads(line) for line in rows(project / "a.jsonl", 30).read_text().splitlines()]))
    initialize("questions", [file], Reading(COLUMNS, choices={"offsets": "search"}), root=project)
    reader = params.load(project / "params.yaml").corpora["a"].reader
    assert isinstance(reader, QuestionsReader)
    assert (reader.file_format, reader.offsets) == ("json", "search")


def test_wrong_offsets_write_nothing(project: Path) -> None:
    file = squad(project / "a.json", 30)
    file.write_text(
        file.read_text(encoding="utf-8").replace('"answer_start": 5', '"answer_start": 4'), encoding="utf-8"
    )
    before = (project / "conf" / "config.yaml").read_bytes()
    with pytest.raises(
        Exception, match=r"a.json: data\[0\].paragraphs\[0\].qas\[0\]: the answer '0' does not begin at 4"
    ):
        initialize("questions", [file], Reading(COLUMNS), root=project)
    assert (project / "conf" / "config.yaml").read_bytes() == before
    assert not (project / "params.yaml").exists()


def test_options_that_mean_nothing_are_refused(project: Path) -> None:
    file = squad(project / "a.json", 30)
    with pytest.raises(UserError, match="--context: files in SQuAD's format have no columns; leave it out"):
        initialize("questions", [file], Reading({**COLUMNS, "context": "c"}), root=project)
    with pytest.raises(UserError, match="--format 'csv': it must be one of: squad, jsonl, json, parquet"):
        initialize("questions", [file], Reading(COLUMNS, format="csv"), root=project)
    with pytest.raises(UserError, match=r"the format '.txt' is unknown"):
        initialize("questions", [project / "a.txt"], _existing(project / "a.txt"), root=project)
    with pytest.raises(UserError, match=r"several formats .jsonl, squad."):
        initialize("questions", [file, rows(project / "b.jsonl", 3)], Reading(COLUMNS), root=project)


def _existing(path: Path) -> Reading:
    path.write_text("x")
    return Reading(COLUMNS)


def test_the_command_line_says_it_all(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    rows(project / "a.jsonl", 40, question="q")
    options = ["--question", "q", "--start", "at", "--id", "n", "--unmatched", "remove", "--offsets", "utf-16"]
    result = CliRunner().invoke(app, ["answer", "a.jsonl", "--name", "mine", *options], catch_exceptions=False)
    assert result.exit_code == 0
    reader = params.load(project / "params.yaml").corpora["mine"].reader
    assert isinstance(reader, QuestionsReader)
    assert (reader.question, reader.start, reader.id, reader.unmatched, reader.offsets) == (
        "q",
        "at",
        "n",
        "remove",
        "utf-16",
    )


def test_a_model_is_evaluated_on_files_of_either_form(project: Path, tmp_path: Path) -> None:
    initialize("questions", [squad(project / "train.json", 60)], Reading(COLUMNS), name="mills", root=project)
    own: dict[str, Any] = dataclasses.asdict(params.load(project / "params.yaml").corpora["mills"])
    described = {"name": "mills", "params": {"corpus": own}}
    for number, file in enumerate((squad(project / "new.json", 7), rows(project / "new.jsonl", 7))):
        reading = Reading({}, choices={} if number == 0 else {"offsets": "search"})
        corpus = _corpus(described, [file], reading, None, project)
        target = tmp_path / f"test{number}"
        target.mkdir()
        with linked(located(corpus, project)) as source:
            test = prepare_test_set(corpus, source, target)
        assert test.count("test") == 7
        assert [one["answers"] for one in test.records("test")] == [[{"text": f"{i}", "start": 5}] for i in range(7)]
