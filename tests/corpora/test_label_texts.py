"""A text that looks like a number, like nothing or like a truth value is a label; a missing number is none."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.prepare import prepare
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all

LABELS = ["0", "00", "1.0", "1e5", "N/A", "NA", "NaN", "None", "TRUE", "false", "nan", "null", "yes"]
ROWS = [(f"text {i}", LABELS[i % len(LABELS)]) for i in range(10 * len(LABELS))]


def _written(form, rows, tmp_path):
    if form == "parquet":
        path = tmp_path / "made.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": [a for a, _ in rows], "label": [b for _, b in rows]}), path)
        return path.read_bytes()
    if form == "jsonl":
        return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    mark = {"csv": ",", "tsv": "\t"}[form]
    return "".join(f"{text}{mark}{label}\n" for text, label in [("text", "label"), *rows])


def _corpus(form, **columns):
    return corpus_of("labelled", {"format": form, "text": "text", "label": "label", **columns})


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_labels_stay_texts(form, tmp_path):
    source = make_source(tmp_path / "source", {f"x.{form}": _written(form, ROWS, tmp_path)})
    prepare("x", _corpus(form), source, tmp_path / "corpus")
    made = PreparedCorpus(tmp_path / "corpus")
    assert made.labels == tuple(LABELS)
    found = {record["text"]: record["label"] for split in ("train", "valid", "test") for record in made.records(split)}
    assert found == dict(ROWS)


@pytest.mark.parametrize(("form", "place"), [("jsonl", "x.jsonl:2"), ("parquet", "x.parquet: row 2")])
def test_a_number_that_is_missing_is_no_label(form, place, tmp_path):
    source = make_source(tmp_path, {f"x.{form}": _written(form, [("a", 1.0), ("b", float("nan"))], tmp_path)})
    records, errors = read_all(_corpus(form), source)
    assert [record.label for record in records] == ["1.0"]
    (error,) = error_texts(errors)
    assert f"{place}: the label in 'label' is empty" in error


def test_records_whose_group_is_missing_are_not_one_group(tmp_path):
    source = make_source(tmp_path, {"x.jsonl": _written("jsonl", [("a", float("nan")), ("b", float("nan"))], tmp_path)})
    corpus = corpus_of("text", {"format": "jsonl", "text": "text", "group": "label"})
    records, _ = read_all(corpus, source)
    assert [record.group for record in records] == [None, None]
