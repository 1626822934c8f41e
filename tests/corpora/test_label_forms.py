"""Labels that are numbers or sets of names: how a file writes them, and the error of each that is neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import UserErrors
from lexmill.commands.check import _file_checks, gather
from lexmill.corpora.prepared import labels_of
from lexmill.corpora.preparing.prepare import prepare
from lexmill.stages import prepare as prepare_stage
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all
from tests.support.labelled_model import FINE_TUNING, begin, entry, params_of, write

SOURCE = {"kind": "file", "paths": ["scores.tsv"]}
NUMBER, SET = {"kind": "number"}, {"kind": "set"}


def reader_of(form: dict[str, Any], file_format: str = "jsonl") -> dict[str, Any]:
    columns = {} if file_format == "labelled_lines" else {"text": "text", "label": "label"}
    return {"format": file_format, **columns, "label_form": form}


def read(folder: Path, form: dict[str, Any], *cells: Any) -> tuple[list[str | None], list[str]]:
    """The labels, and the errors, of JSON lines with these cells."""
    rows = "\n".join(json.dumps({"text": "a text", "label": cell}) for cell in cells)
    records, errors = read_all(corpus_of("labelled", reader_of(form)), make_source(folder, {"a.jsonl": rows}))
    return [record.label for record in records], [text.removeprefix(f"{folder}/") for text in error_texts(errors)]


def test_numbers_stay_as_they_are_written(tmp_path: Path) -> None:
    assert read(tmp_path, NUMBER, 3, 0.5, "-1e3", " 4 ") == (["3", "0.5", "-1e3", "4"], [])


def test_each_label_that_is_no_number_is_an_error_with_its_line(tmp_path: Path) -> None:
    labels, errors = read(tmp_path, NUMBER, 1, "good", 2, "3,5", float("inf"), True, None)
    assert labels == ["1", "2"]
    assert errors[0] == (
        "a.jsonl:2: 'label': the label 'good' is no number; for names set reader.label_form.kind: name"
    )
    assert [error.partition(": 'label': ")[0] for error in errors] == [f"a.jsonl:{n}" for n in (2, 4, 5, 6, 7)]
    assert errors[-1] == "a.jsonl:7: 'label': the label is empty"


def test_sets_are_texts_or_lists(tmp_path: Path) -> None:
    cells = ["b;a", " a ; ;b;a", "none", ["b", "a"], ["a"], [], [1, True]]
    labels, errors = read(tmp_path, SET, *cells)
    assert not errors
    assert labels == ["a;b", "a;b", "none", "a;b", "a", "none", "1;true"]
    assert [labels_of(label or "") for label in labels[2:4]] == [[], ["a", "b"]]
    # Another separator, and an empty cell for none.
    assert read(tmp_path, SET | {"separator": "|", "no_labels": ""}, "b|a", "") == (["a;b", "none"], [])


def test_what_is_no_set_is_an_error_with_its_line(tmp_path: Path) -> None:
    labels, errors = read(tmp_path, SET, "none;billing", ["a", "none"], "", ["x;y"], [["a"]], "a;b")
    assert labels == ["a;b"]
    assert errors == [
        "a.jsonl:1: 'label': 'none' means no label, but is written with others",
        "a.jsonl:2: 'label': 'none' means no label, but is written with others",
        "a.jsonl:3: 'label': the label is empty; a text without labels has 'none'",
        "a.jsonl:4: 'label': the label 'x;y' cannot be stored in a set; give it another name",
        "a.jsonl:5: 'label' holds ['a'], not text",
    ]
    _, (error,) = read(tmp_path, {"kind": "name"}, ["a", "b"])
    assert error == "a.jsonl:1: 'label' holds the list ['a', 'b']; for several labels set reader.label_form.kind: set"


def test_lines_and_tables_have_them_too(tmp_path: Path) -> None:
    lines = corpus_of("labelled", reader_of(NUMBER, "labelled_lines"))
    records, errors = read_all(lines, make_source(tmp_path / "lines", {"a.txt": "1.5 a text\nx a text\n"}))
    assert [record.label for record in records] == ["1.5"]
    assert "a.txt:2: the label 'x' is no number" in error_texts(errors)[0]
    table = corpus_of("labelled", reader_of(SET, "csv"))
    records, errors = read_all(table, make_source(tmp_path / "table", {"a.csv": "text,label\nt,b;a\nt,none;a\n"}))
    assert [record.label for record in records] == ["a;b"]
    assert "a.csv:3: 'label': 'none' means" in error_texts(errors)[0]


def test_a_prepared_corpus_names_each_label_of_its_sets(tmp_path: Path) -> None:
    cells = ["a", "b", "a;b", "none"] * 15
    rows = "\n".join(json.dumps({"text": f"text {i}", "label": cell}) for i, cell in enumerate(cells))
    source = make_source(tmp_path / "source", {"a.jsonl": rows})
    prepare("sets", corpus_of("labelled", reader_of(SET)), source, tmp_path / "corpus")
    assert json.loads((tmp_path / "corpus" / "manifest.json").read_text())["labels"] == ["a", "b", "none"]


@pytest.mark.parametrize("keys", [{"labels": ["a", "b"]}, {"label": "a", "positive_from": 2, "negative_to": 1}])
def test_only_one_label_can_be_a_number_or_a_set(keys: dict[str, Any]) -> None:
    reader = {"format": "csv", "text": "text", "label_form": NUMBER} | keys
    with pytest.raises(AssertionError, match=r"label_form\.kind: .* makes names; leave out one of the two"):
        corpus_of("labelled", reader)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A regressor on a table with three wrong numbers."""
    begin(tmp_path, monkeypatch)
    rows = [f"text {i}\t{i}" for i in range(60)] + ["a\tgood", "b\t", "c\t5 stars"]
    Path("scores.tsv").write_text("\n".join(["text\tlabel", *rows]))
    write(params_of({"rating": entry("regressor", "scores", FINE_TUNING)}, {"format": "tsv"}, source=SOURCE))
    return tmp_path


def test_check_and_prepare_report_every_label_that_is_no_number(project: Path) -> None:
    wrong = {62: "the label 'good' is no number", 63: "the label is empty", 64: "the label '5 stars' is no number"}
    checked = "\n".join(gather(_file_checks()))
    make_source(layout.source("scores"), {"scores.tsv": Path("scores.tsv").read_bytes()})
    with pytest.raises(UserErrors) as raised:
        prepare_stage.main("scores")
    for line, message in wrong.items():
        assert f"{project / 'scores.tsv'}:{line}: 'label': {message}" in checked
        assert f"scores.tsv:{line}: 'label': {message}" in str(raised.value)


def test_a_model_names_the_corpus_whose_labels_it_cannot_learn(project: Path) -> None:
    data = yaml.safe_load((project / "params.yaml").read_text())
    data["corpora"]["scores"]["reader"]["label_form"]["kind"] = "name"
    wanted = (
        "models.rating.data.corpus: a label of 'scores' is a name, and a regressor needs a number; set"
        " corpora.scores.reader.label_form.kind: number"
    )
    with pytest.raises(UserErrors) as raised:
        params.parse(data)
    assert wanted in str(raised.value)
