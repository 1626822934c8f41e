"""Labels that are in no column: before or after a text in its line, or the name of a folder."""

from pathlib import Path

import pytest

from lexmill.base.strict import build
from lexmill.corpora.preparing.prepare import prepare
from lexmill.params.corpora import Corpus, FileSource
from tests.corpora.made_cuts import same
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all
from tests.support.fetching import bring

LINES = {"format": "labelled_lines"}
FOLDERS = {"format": "text", "label_from": "folder"}


def labelled(reader, folder):
    records, errors = read_all(corpus_of("labelled", reader), folder)
    assert not errors, error_texts(errors)
    return [(record.id, record.group, record.label, record.text) for record in records]


def corpus_errors(kind, reader):
    errors = []
    source = {"kind": "file", "paths": ["x"]}
    build(Corpus, {"kind": kind, "reader": reader, "source": source, "languages": ["en", "de"]}, errors)
    return errors


# ---------------------------------------------------------------- label and text in one line


@pytest.mark.parametrize(
    ("line", "keys", "label", "text"),
    [
        ("DESC:manner How did serfdom develop ?", {}, "DESC:manner", "How did serfdom develop ?"),
        ("__label__x some text", {}, "__label__x", "some text"),
        ("a b\tsome\ttext", {"separator": "\t"}, "a b", "some\ttext"),
        ("some text , for instance , b", {"separator": " , ", "label_first": False}, "b", "some text , for instance"),
        ("a ", {}, "a", ""),
    ],
)
def test_a_line_holds_a_label_and_a_text(tmp_path, line, keys, label, text):
    make_source(tmp_path, {"t.label": f"\ufeff{line}\r\n\n \nz z\n".replace("z z", f"z{keys.get('separator', ' ')}z")})
    first, second = labelled({**LINES, **keys}, tmp_path)
    assert first == ("t:1", None, label, text)
    assert second == ("t:4", None, "z", "z")


def test_a_line_without_its_label_is_an_error(tmp_path):
    make_source(tmp_path, {"a.txt": "x fine\nlonely\n text\n", "b.txt": "\xff".encode("latin-1")})
    first, second, third = error_texts(read_all(corpus_of("labelled", LINES), tmp_path)[1])
    assert "a.txt:2: there is no ' ' between label and text; check reader.separator" in first
    assert "a.txt:3: there is no label before the first ' '" in second
    assert "b.txt:1: not UTF-8" in third
    (last,) = error_texts(
        read_all(corpus_of("labelled", {**LINES, "label_first": False}), make_source(tmp_path / "c", {"c.txt": "a "}))[
            1
        ]
    )
    assert "c.txt:1: there is no label after the last ' '" in last


def test_labelled_lines_are_cut_between_lines(tmp_path):
    folder = make_source(tmp_path, {"a.txt": "x é text\r\n\ny \nno\n" * 20})
    assert max(same(corpus_of("labelled", LINES), folder, size) for size in (1, 7, 30, 100)) > 20


@pytest.mark.parametrize("separator", ["", "\n", "a\nb"])
def test_a_separator_is_within_a_line(separator):
    (error,) = corpus_errors("labelled", {**LINES, "separator": separator})
    assert "reader.separator: " in error


# ---------------------------------------------------------------- a folder for each label


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ("file", [("neg/1", "neg/1", "neg", "bad\n"), ("pos/1", "pos/1", "pos", "good\n\nfine\n")]),
        (
            "paragraph",
            [("neg/1:1", None, "neg", "bad"), ("pos/1:1", None, "pos", "good"), ("pos/1:3", None, "pos", "fine")],
        ),
        (
            "line",
            [("neg/1:1", None, "neg", "bad")]
            + [(f"pos/1:{i}", None, "pos", t) for i, t in enumerate(["good", "", "fine"], 1)],
        ),
    ],
)
def test_the_folder_of_a_file_is_its_label(tmp_path, document, wanted):
    make_source(tmp_path, {"neg/1.txt": "bad\n", "pos/1.txt": "good\n\nfine\n"})
    assert labelled({**FOLDERS, "document": document}, tmp_path) == wanted


def test_a_file_in_no_folder_is_named(tmp_path):
    make_source(tmp_path, {"pos/a.txt": "x", "b.txt": "y", "c.txt": "z"})
    first, second = error_texts(read_all(corpus_of("labelled", FOLDERS), tmp_path)[1])
    assert "b.txt: is in no folder that could be its label" in first
    assert "set source.keep_folder: true" in first
    assert "c.txt" in second


def test_folders_of_labels_are_prepared(tmp_path):
    files = {f"{label}/{i}.txt": f"text {label} {i}" for label in ("pos", "neg") for i in range(30)}
    source = make_source(tmp_path / "source", files)
    corpus = corpus_of("labelled", FOLDERS, splits={"valid": 0.2, "test": 0.2})
    assert prepare("made", corpus, source, tmp_path / "made").metrics["used"] == 60
    assert '"labels": [\n    "neg",\n    "pos"\n  ]' in (tmp_path / "made" / "manifest.json").read_text()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("data/pos/1.txt", "data/pos/2.txt", "data/neg/3.txt", "data/neg/more/4.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize(
    ("paths", "kept", "without"),
    [
        (["data/*/*.txt"], "data/neg/3.txt data/pos/1.txt data/pos/2.txt", "neg/3.txt pos/1.txt pos/2.txt"),
        (["data/pos/*.txt", "data/neg/*.txt"], "neg/3.txt pos/1.txt pos/2.txt", "1.txt 2.txt 3.txt"),
        (["data/pos/1.txt", "data/neg/more/*"], "more/4.txt pos/1.txt", "1.txt 4.txt"),
        (["data/neg/**"], "neg/3.txt neg/more/4.txt", "3.txt more/4.txt"),
    ],
)
def test_a_file_keeps_its_folder_where_it_should(workspace, paths, kept, without, absolute):
    paths = tuple(str(workspace / path) if absolute else path for path in paths)
    assert " ".join(sorted(bring(FileSource("file", paths, (), True), workspace))) == kept
    assert " ".join(sorted(bring(FileSource("file", paths), workspace))) == without


def test_files_of_one_name_keep_their_folder_too(workspace):
    (workspace / "data/pos/more").mkdir()
    (workspace / "data/pos/more/4.txt").write_text("other")
    paths = ("data/pos/more/4.txt", "data/neg/more/4.txt", "data/pos/1.txt")
    names = sorted(bring(FileSource("file", paths, (), True), workspace))
    assert names == ["data/neg/more/4.txt", "data/pos/1.txt", "data/pos/more/4.txt"]


def test_readers_of_labels_are_for_labelled_corpora():
    assert corpus_errors("text", FOLDERS) == [
        "reader.label_from: a text corpus has no labels, but this is 'folder'; leave it out"
    ]
    assert "reader.label_from: texts of a labelled corpus need it" in corpus_errors("labelled", {"format": "text"})[0]
    assert corpus_errors("parallel", {"format": "text"}) == ["reader.format: 'text' cannot give a parallel corpus"]
    assert "gives labelled texts, but kind is 'text'" in corpus_errors("text", LINES)[0]
