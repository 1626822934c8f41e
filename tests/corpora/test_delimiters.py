"""The delimiter of a table, and what is said where the columns are not there."""

import pytest

from lexmill.base.strict import build
from lexmill.params.readers import RecordsReader
from tests.corpora.made_cuts import same
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all


def reader_errors(**keys):
    errors = []
    build(RecordsReader, {"format": "csv", "text": "t", **keys}, errors, "reader")
    return errors


@pytest.mark.parametrize("delimiter", [";", "|", " ", "\t", "·"])
@pytest.mark.parametrize("quoting", [True, False])
def test_any_character_separates_fields(tmp_path, delimiter, quoting):
    text = '"one, two"' if quoting else "one,two"
    lines = [delimiter.join(row) for row in (["text", "label"], [text, "a"], ["three", "b"])]
    make_source(tmp_path, {"t.csv": "\n".join(lines)})
    columns = {"format": "csv", "text": "text", "label": "label", "delimiter": delimiter, "quoting": quoting}
    records, errors = read_all(corpus_of("labelled", columns), tmp_path)
    assert not errors
    assert [(r.text, r.label) for r in records] == [(text.strip('"'), "a"), ("three", "b")]


def test_a_table_is_cut_at_its_own_delimiter(tmp_path):
    made = make_source(tmp_path, {"t.csv": 't;g\n"one;\ntwo";g\n' + 'x;"\n"\n' * 20})
    corpus = corpus_of("text", {"format": "csv", "text": "t", "group": "g", "delimiter": ";"})
    assert max(same(corpus, made, size) for size in (5, 20, 60)) > 2


@pytest.mark.parametrize("delimiter", ["", ";;", "\n", "\r", '"'])
def test_a_delimiter_is_one_character(delimiter):
    (error,) = reader_errors(delimiter=delimiter)
    assert error.startswith("reader.delimiter: ")
    assert "not one character" in error


def test_what_is_wrong_with_a_delimiter_is_said():
    assert 'a tab is "\\t" in double quotes' in reader_errors(delimiter="\\t")[0]
    assert reader_errors(format="jsonl", delimiter=";") == ["reader.delimiter: jsonl has none; leave it out"]
    assert reader_errors(delimiter='"', quoting=False) == []


def said(tmp_path, name, data, **keys):
    make_source(tmp_path, {name: data})
    reader = {"format": name[-3:], "text": "text", "label": "label", **keys}
    (error,) = error_texts(read_all(corpus_of("labelled", reader), tmp_path)[1])
    return error


COMMAS = "set reader.delimiter: ',' (init: --delimiter ',')"
NUMBERED = {"text": "1", "label": "0", "header": False}


@pytest.mark.parametrize(
    ("name", "data", "keys", "hint"),
    [
        (
            "a.csv",
            "text;label\nx, y;z\n",
            {},
            "semicolons: set reader.delimiter: ';' (init: --delimiter ';')",
        ),
        ("a.csv", "text\tlabel\nx\ty\n", {}, """by tabs: set reader.delimiter: "\\t" (init: --delimiter '\\t')"""),
        ("a.csv", "id, no;text;label\nx;y;z\n", {}, "by semicolons"),  # the header has a comma too
        ("a.tsv", "text,label\nx,y\n", {}, f"by commas: {COMMAS}"),
        ("a.tsv", 'a,"x, y"\nb,z\nc,"x, y, z"\n', NUMBERED, f"by commas: {COMMAS}"),  # the same count in all lines
    ],
)
def test_the_delimiter_that_fits_is_named(tmp_path, name, data, keys, hint):
    assert hint in said(tmp_path, name, data, **keys)


@pytest.mark.parametrize(
    ("name", "data", "keys"),
    [
        ("a.tsv", "a some text, with a comma\nb another text\nc more, and more, text\n", NUMBERED),
        ("a.tsv", "a b,c\n", NUMBERED),  # one line shows nothing
        ("a.csv", "a;b|c\nd;e|f\ng;h|i\n", NUMBERED),  # two would do
        ("a.csv", "text,lable\nx,y\n", {}),
    ],
)
def test_where_no_delimiter_fits_none_is_named(tmp_path, name, data, keys):
    error = said(tmp_path, name, data, **keys)
    assert "there is no column" in error
    assert "separated" not in error
    assert "reader.header" not in error


def test_a_header_that_is_data_is_said_to_be(tmp_path):
    error = said(tmp_path, "a.tsv", "spam\tbuy now\nham\thello\n")
    assert "a.tsv:1: there is no column 'text'" in error
    assert "set reader.header: false (init: --no-header) and number the columns from 0" in error
