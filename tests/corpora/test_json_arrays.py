"""Files of JSON that are one array of objects, and labels of several columns."""

import json
import tracemalloc

import pytest

from lexmill.base.strict import build
from lexmill.corpora.preparing import text_files
from lexmill.corpora.preparing.source_files import LineNames
from lexmill.params.readers import RecordsReader
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all

ARRAY = {"format": "json", "text": "t"}
RECORDS = [{"t": "one\n\u2028", "x": [1]}, {"t": "ä"}, {"t": ""}]
SPREAD = [("t:2", "one\n\u2028"), ("t:8", "ä"), ("t:11", "")]


def read(tmp_path, data, reader=ARRAY, kind="text"):
    return read_all(corpus_of(kind, reader), make_source(tmp_path, {"t.json": data}))


def errors_of(tmp_path, data, reader=ARRAY, kind="text"):
    return error_texts(read(tmp_path, data, reader, kind)[1])


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (json.dumps(RECORDS, indent=1), SPREAD),
        ("\ufeff" + json.dumps(RECORDS, indent=1).replace("\n", "\r\n"), SPREAD),
        (json.dumps(RECORDS), [("t:1", "one\n\u2028"), ("t:1.2", "ä"), ("t:1.3", "")]),
        (
            json.dumps({"version": {"a": [{}]}, "data": RECORDS[1:], "empty": [], "no": [1]}),
            [("t:1", "ä"), ("t:1.2", "")],
        ),
        ('\n{"data"\n:\n[{"t": "a"}\n,{"t": "b"}]}\n', [("t:4", "a"), ("t:5", "b")]),
        ("[]", []),
    ],
)
def test_an_array_of_objects(tmp_path, data, wanted):
    records, errors = read(tmp_path, data)
    assert not errors, error_texts(errors)
    assert [(record.id, record.text) for record in records] == wanted


def test_errors_have_the_line_of_their_record(tmp_path):
    data = '[{"t": "a"},\n{"u": 1}, {"t": 2},\n[3],\n{"t": "\\ud800"}]'
    first, second, third, fourth = errors_of(tmp_path, data)
    assert "t.json:2: there is no column 't'; columns: u" in first
    assert "t.json:2: row 2.2: 't' holds 2, not text" in second
    assert "t.json:3: expected a JSON object, got [3]" in third
    assert "t.json:4: 't' holds half a character" in fourth


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ('[{"t": "a"},\n{"t": "b"}', "t.json:2: not valid JSON: Expecting ',' or ']'"),
        ('[{"t": "a"},\n]', "t.json:2: not valid JSON: Expecting value"),
        ('[{"t": "a"}]\n[]', "t.json:2: not valid JSON: Extra data"),
        ('{"a": [{"t": "a"}]}\nx', "t.json:2: not valid JSON: Extra data"),
        ('{"a": 1,\n2: 3}', "t.json:2: not valid JSON: Expecting property name"),
        ('{"a"\n1}', "t.json:2: not valid JSON: Expecting ':'"),
        ('[{"t": ' + "[" * 100_000, "t.json:1: not valid JSON: nested too deep"),
        ('{"a": [{"t": "x"}], "b": [{"t": "y"}]}', "t.json:1: there are several arrays of objects (a, b); give a file"),
        ('{"a": [1], "b": {"c": [{"t": "y"}]}}', "t.json:1: there is no array of objects"),
        ("3", "t.json:1: there is no array of objects"),
        ("", "t.json:1: not valid JSON: Expecting value"),
        ('{"t": "a"}\n{"t": "b"}', "t.json:2: not valid JSON: Extra data"),
    ],
)
def test_what_is_no_array_of_objects(tmp_path, data, said):
    (error,) = errors_of(tmp_path, data)
    assert said in error


def test_a_large_file_is_told_to_be_jsonl(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_DOCUMENT_BYTES", 1 << 20)
    (error,) = errors_of(tmp_path, json.dumps([{"t": "word " * 9}] * 40_000, indent=0))
    assert "larger than 1 MiB; write it as JSON lines and set reader.format: jsonl" in error


def test_records_are_in_memory_one_at_a_time(tmp_path):
    data = json.dumps({"data": [{"t": "", "x": [{}] * 10} for _ in range(20_000)]})
    folder = make_source(tmp_path, {"t.json": data})
    tracemalloc.start()
    try:
        from lexmill.corpora.preparing import readers
        from lexmill.corpora.preparing.errors import Errors
        from lexmill.corpora.preparing.source_files import SourceFiles

        assert sum(1 for _ in readers.read(corpus_of("text", ARRAY), SourceFiles(folder), Errors())) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 6 * len(data)
    finally:
        tracemalloc.stop()


def test_records_of_one_line_have_names_of_their_own():
    names = LineNames()
    assert [names.next(line) for line in (1, 1, 1, 3, 4, 4)] == ["1", "1.2", "1.3", "3", "4", "4.2"]


# ---------------------------------------------------------------- labels of several columns

SEVERAL = {"format": "csv", "text": "text", "labels": ["kind", "part"]}


def test_several_columns_make_one_label(tmp_path):
    make_source(tmp_path, {"t.csv": "part,text,kind\n1,a,x\n 2 ,b,x\n"})
    records, errors = read_all(corpus_of("labelled", SEVERAL), tmp_path)
    assert not errors
    assert [(record.text, record.label) for record in records] == [("a", "x / 1"), ("b", "x / 2")]


def test_a_value_that_is_empty_or_like_two_is_an_error(tmp_path):
    make_source(tmp_path, {"t.csv": "part,text,kind\n,a,x\n1,b,x / y\n", "u.csv": "part,text\n1,a\n"})
    first, second, third = error_texts(read_all(corpus_of("labelled", SEVERAL), tmp_path)[1])
    assert "t.csv:2: the label in 'part' is empty" in first
    assert "t.csv:3: 'kind' holds ' / ', which joins the values of reader.labels" in second
    assert "u.csv:1: there is no column 'kind'" in third


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"labels": ["a", "b"], "label": "a"}, "labels: they take the place of label; give one of the two"),
        ({"labels": ["a"]}, "labels: give two different columns or more; for a single one set label"),
        ({"labels": ["a", "a"]}, "labels: give two different columns or more; for a single one set label"),
        (
            {"labels": ["a", "b"], "positive_from": 1, "negative_to": 0},
            "labels: only a single label can be a rating; set label, or leave out positive_from",
        ),
        ({"format": "parquet", "encodings": {"*": "ascii"}}, "encodings: parquet files are UTF-8; leave it out"),
    ],
)
def test_choices_that_do_not_go_together(keys, said):
    errors = []
    build(RecordsReader, {"format": "csv", "text": "t", **keys}, errors)
    assert errors == [said]
