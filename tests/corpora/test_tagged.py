"""Tagged sentences: columns and records to words and tags, entities in iob2, and what is wrong with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build
from lexmill.corpora.prepared import PreparedCorpus, texts_of
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.test_set import prepare_test_set
from lexmill.params.corpora import Corpus
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all

CONLL = {"format": "conll", "scheme": "iob2"}
CONLLU = {"format": "conllu"}
LISTS = {"format": "tagged_records", "words": "tokens", "tags": "ner", "scheme": "bioes"}
EWT = """\
# newdoc id = weblog-1
# sent_id = 1
# text = Don't go.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\tNER=O
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No|NER=B-act
3.1\twent\tgo\tVERB\tVB\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

# sent_id = 2
1\t#\t#\tSYM\tNN\t_\t0\troot\t_\t_

# newdoc
1\t10\u00a0000\t_\tNUM\tCD\t_\t0\troot\t_\tNER=B-x
"""


def pairs(record: Record) -> str:
    return " ".join(f"{word}/{tag}" for word, tag in zip(record.words, record.tags, strict=True))


def read(reader: dict[str, Any], text: str | bytes, folder: Path, name: str = "f.x") -> list[Record]:
    records, errors = read_all(corpus_of("tagged", reader), make_source(folder, {name: text}))
    assert error_texts(errors) == []
    return records


def wrong(reader: dict[str, Any], text: str | bytes, folder: Path, name: str = "f.x") -> list[str]:
    _, errors = read_all(corpus_of("tagged", reader), make_source(folder, {name: text}))
    return [error.removeprefix(f"{folder}/") for error in error_texts(errors)]


def test_the_words_of_conllu_without_ranges_and_empty_nodes(tmp_path: Path) -> None:
    records = read(CONLLU, EWT, tmp_path)
    assert [pairs(one) for one in records] == ["Do/AUX n't/PART go/VERB ./PUNCT", "#/SYM", "10\u00a0000/NUM"]
    assert [one.id for one in records] == ["f:5", "f:12", "f:15"]
    assert [one.text for one in records] == ["Do n't go .", "#", "10\u00a0000"]
    assert {one.group for one in records} == {None}


def test_other_columns_and_documents_of_conllu(tmp_path: Path) -> None:
    found = read(CONLLU | {"tag": "xpos", "group": "document"}, EWT, tmp_path)
    assert [pairs(one) for one in found] == ["Do/VB n't/RB go/VB ./.", "#/NN", "10\u00a0000/CD"]
    assert [one.group for one in found] == ["weblog-1", "weblog-1", "f:2"]
    misc = read(CONLLU | {"tag": "misc", "key": "NER", "scheme": "iob2"}, EWT, tmp_path)
    assert [pairs(one) for one in misc] == ["Do/O n't/O go/B-act ./O", "#/O", "10\u00a0000/B-x"]


def test_columns_of_conll_and_its_documents(tmp_path: Path) -> None:
    text = (
        "-DOCSTART- -X- O\n\nU.N. NNP  I-ORG\nsaid VBD\tO\n \n\t\n-DOCSTART- -X- O\n\nRome NNP I-LOC\nParis NNP B-LOC"
    )
    reader = CONLL | {"scheme": "iob1", "group": "document"}
    found = read(reader, text, tmp_path)
    assert [pairs(one) for one in found] == ["U.N./B-ORG said/O", "Rome/B-LOC Paris/B-LOC"]
    assert [(one.id, one.group) for one in found] == [("f:3", "f:1"), ("f:9", "f:2")]
    tags = read(CONLL | {"scheme": "none", "tag": 1}, text, tmp_path)
    assert pairs(tags[1]) == "Rome/NNP Paris/NNP"
    assert {one.group for one in tags} == {None}


def test_what_bites_in_files_of_columns(tmp_path: Path) -> None:
    """A byte order mark, CRLF, words that begin like comments or hold odd spaces, no blank line at the end."""
    text = "\ufeff#tag\tO\r\nx\u00a0y\tB-a\r\nz\u2028\tI-a\r\n\r\n\r\n# \tO\r\n\r\n\u0085n\tO".encode()
    found = read(CONLL | {"separator": "tab"}, text, tmp_path)
    assert [list(one.words) for one in found] == [["#tag", "x\u00a0y", "z"], ["#"], ["n"]]
    assert found[0].tags == ("O", "B-a", "I-a")
    # White space of another kind does not separate columns.
    assert read(CONLL, "a\u00a0b O\n", tmp_path)[0].words == ("a\u00a0b",)
    commented = read(CONLL | {"comment": "# "}, "# id = 1\n#b\tO\n", tmp_path)
    assert commented[0].words == ("#b",)


@pytest.mark.parametrize(
    ("reader", "text", "errors"),
    [
        (CONLL, "a O\nb\n\nc O\n", ["f.x:2: 1 column, so the word would be its own tag; check reader.word"]),
        (
            CONLL,
            "a x O\n\nNew York LOC O\nis x O\nd O\n",
            ["f.x:4: 3 columns where its sentence begins with 4; check", "f.x:5: 2 columns where its sentence begins"],
        ),
        (CONLL, "a O\nb I-x\n", ["f.x:2: 'I-x' cannot follow 'O' in the scheme iob2; is reader.scheme right?"]),
        (CONLL | {"tag": 3}, "a b c O\nb O\n", ["f.x:2: 2 columns, so there is no column 3; check reader.word"]),
        (CONLL, "a O\n\nb S-x\n", ["f.x:3: 'S-x' is no tag of the scheme iob2: B-type, I-type or O; is reader"]),
        (CONLL | {"scheme": "bioes"}, "a B-x\nb O\n", ["f.x:2: 'O' cannot follow 'B-x' in the scheme bioes"]),
        (CONLL | {"separator": "tab"}, "a\tO\n\t\tO\n", ["f.x:2: the word in column 0 is empty"]),
        (CONLL, b"a O\n\xff O\n", ["f.x:2: "]),
        (CONLLU, "1\ta\tb\n", ["f.x:1: 3 columns between tabs; a word of CoNLL-U has 10"]),
        (CONLLU, EWT.replace("3\tgo", "x\tgo"), ["f.x:7: 'x' is no number of a word"]),
        (CONLLU, EWT.replace("PART", "_"), ["f.x:6: the word has no upos; does the file have that column?"]),
        (LISTS, '{"tokens": ["a"], "ner": ["O", "O"]}', ["f.x:1: 'tokens' has 1 words, 'ner' 2 tags"]),
        (LISTS, '{"tokens": ["a", " "], "ner": ["O", "O"]}', ["f.x:1: word 2 of 'tokens' is empty"]),
        (LISTS, '{"tokens": "a b", "ner": ["O"]}', ["f.x:1: 'tokens' holds 'a b', not a list of texts"]),
        (LISTS, '{"tokens": ["a"], "ner": [1]}', ["f.x:1: 'ner' holds the number 1; give the tags' names in reader"]),
        (LISTS | {"names": ["O"]}, '{"tokens": ["a"], "ner": [1]}', ["f.x:1: 'ner' holds the number 1, but reader.na"]),
        (LISTS, '{"tokens": ["a", "b"], "ner": ["O", "E-x"]}', ["f.x:1: tag 2 of 'ner': 'E-x' cannot follow 'O' in"]),
        (LISTS, '{"tokens": [1], "ner": ["O"]}', ["f.x:1: 'tokens' holds 1, not text"]),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    reader: dict[str, Any], text: str | bytes, errors: list[str], tmp_path: Path
) -> None:
    found = wrong(reader, text, tmp_path)
    assert len(found) == len(errors), found
    assert all(one.startswith(wanted) for one, wanted in zip(found, errors, strict=True)), found


def test_all_errors_are_reported_and_nothing_is_written(tmp_path: Path) -> None:
    corpus = corpus_of("tagged", CONLL)
    source = make_source(tmp_path / "in", {"a.conll": "a O\nb\n", "b.conll": "c I-x\n"})
    with pytest.raises(UserErrors) as raised:
        prepare("tags", corpus, source, tmp_path / "out")
    first, second = map(str, raised.value.errors)
    assert "a.conll:2: 1 column" in first
    assert "b.conll:1: 'I-x' cannot begin a sentence" in second
    assert not (tmp_path / "out").exists()


def test_lists_of_words_and_tags(tmp_path: Path) -> None:
    rows = [{"tokens": ["New", " York ", "x"], "ner": ["B-loc", "E-loc", "O"]}, {"tokens": ["U"], "ner": ["S-org"]}]
    text = "\n".join(map(json.dumps, rows))
    wanted = ["New/B-loc York/I-loc x/O", "U/B-org"]
    assert [pairs(one) for one in read(LISTS, text, tmp_path)] == wanted
    assert [pairs(one) for one in read(LISTS | {"file_format": "json"}, json.dumps(rows), tmp_path)] == wanted
    names = ["O", "B-loc", "E-loc", "S-org"]
    numbers = {"tokens": [row["tokens"] for row in rows], "ner": [[1, 2, 0], [3]], "doc": ["p", "q"]}
    pyarrow.parquet.write_table(pyarrow.table(numbers), tmp_path / "f.parquet")
    reader = LISTS | {"file_format": "parquet", "names": names, "group": "doc"}
    found = read(reader, (tmp_path / "f.parquet").read_bytes(), tmp_path)
    assert [pairs(one) for one in found] == wanted
    assert [one.group for one in found] == ["p", "q"]


def made(count: int, tag: str = "N") -> str:
    return "".join(f"w{tag}{i} {tag}\nx X\n\n" for i in range(count))


def test_a_prepared_corpus_has_words_tags_and_the_owners_splits(tmp_path: Path) -> None:
    files = {"train.conll": made(30) + made(2), "dev.conll": made(4, "D"), "test.conll": made(3), "hard.conll": "y Y\n"}
    sets = {"valid": ["dev.conll"], "test": ["test.conll"], "test_hard": ["hard.conll"]}
    corpus = corpus_of("tagged", {"format": "conll"}, splits={"files": sets}, filters={"min_words": 2})
    report = prepare("tags", corpus, make_source(tmp_path / "in", files), tmp_path / "out")
    found = PreparedCorpus(tmp_path / "out")
    assert (found.kind, found.labels, found.entities) == ("tagged", ("D", "N", "X", "Y"), False)
    assert {split: found.count(split) for split in ("train", "valid", "test", "test_hard")} == {
        "train": 27,  # 30, of which three are also in test; two are duplicates
        "valid": 4,
        "test": 3,
        "test_hard": 1,
    }
    first = next(found.records("valid"))
    assert (first["words"], first["tags"]) == (["wD0", "x"], ["D", "X"])
    assert texts_of(first) == ("wD0 x",)
    assert report.metrics["removed"] == {"min_words": 0, "exact_duplicates": 2, "also_in_valid_or_test": 3} | {
        key: 0 for key in report.metrics["removed"] if key == "min_characters"
    }
    assert report.metrics["tags"] == {"D": 4, "N": 30, "X": 34, "Y": 1}
    assert report.metrics["words"]["test"] == 6
    shown = {one["name"]: one["examples"] for one in report.samples["filters"]}
    assert "wN0 x" in shown["also_in_valid_or_test"]


def test_words_are_normalised_and_masked_one_by_one(tmp_path: Path) -> None:
    text = "Cafe\u0301 B-x\n" + "me@example.org O\n\n" + made(20).replace(" X", " O").replace(" N", " B-n")
    corpus = corpus_of("tagged", CONLL, filters={"personal_data": "mask"}, splits={"test": 0.3, "valid": 0.3})
    report = prepare("tags", corpus, make_source(tmp_path / "in", {"a.conll": text}), tmp_path / "out")
    found = PreparedCorpus(tmp_path / "out")
    words = [record["words"] for split in ("train", "valid", "test") for record in found.records(split)]
    assert ["Caf\u00e9", "<email>"] in words
    assert report.metrics["masked"]["email"] == 1
    assert found.entities


def test_one_tag_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one tag only, 'X'; two are needed"):
        corpus = corpus_of("tagged", {"format": "conll"})
        prepare("t", corpus, make_source(tmp_path / "in", {"a": made(40).replace(" N", " X")}), tmp_path / "out")


def test_a_test_set_on_its_own(tmp_path: Path) -> None:
    source = make_source(tmp_path / "in", {"a.conll": "a I-x\nb I-x\n\nc O\n"})
    (tmp_path / "out").mkdir()
    found = prepare_test_set(corpus_of("tagged", CONLL | {"scheme": "iob1"}), source, tmp_path / "out")
    assert [record["tags"] for record in found.records("test")] == [["B-x", "I-x"], ["O"]]


@pytest.mark.parametrize(
    ("kind", "reader", "message"),
    [
        ("labelled", CONLL, "format: 'conll' gives tagged sentences, but kind is 'labelled'"),
        ("text", CONLLU, "format: 'conllu' gives tagged sentences, but kind is 'text'"),
        ("text", LISTS, "format: 'tagged_records' gives tagged sentences, but kind is 'text'"),
        ("tagged", {"format": "text"}, "format: 'text' cannot give a tagged corpus"),
        ("tagged", {"format": "jsonl", "text": "a"}, "tagged sentences are read by 'conll', 'conllu' or 'tagged_rec"),
        ("tagged", CONLL | {"tag": 0}, "tag: 0 is the column of the word"),
        ("tagged", CONLLU | {"tag": "misc"}, "key: it belongs to tag: misc; give both or neither"),
        ("tagged", CONLLU | {"key": "NER"}, "key: it belongs to tag: misc; give both or neither"),
        ("tagged", CONLL | {"scheme": "bio"}, "scheme: 'bio' is none of"),
    ],
)
def test_readers_that_do_not_fit(kind: str, reader: dict[str, Any], message: str) -> None:
    errors: list[str] = []
    build(Corpus, {"kind": kind, "reader": reader, "source": {"kind": "file", "paths": ["x"]}}, errors)
    assert any(message in error for error in errors), errors
