"""Corpora of questions: SQuAD's files and records, where answers begin, what rewriting does to them, splits."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base.errors import UserErrors
from lexmill.base.strict import build
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.answers import Answer, NotFound, located, moved
from lexmill.corpora.preparing.prepare import Report, prepare
from lexmill.corpora.preparing.record import Record
from lexmill.params.corpora import Corpus
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all

CONTEXT = "Ada built the mill in 1843. 🙂 Café Ada is old."


def question(name: str, *answers: tuple[str, Any], **more: Any) -> dict[str, Any]:
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"{name}?", "answers": found, **more}


def squad(*paragraphs: tuple[str, list[dict[str, Any]]], title: str = "Mills") -> str:
    inner = [{"context": context, "qas": asked} for context, asked in paragraphs]
    return json.dumps({"version": "v2.0", "data": [{"title": title, "paragraphs": inner}]})


def squad_reader(**keys: Any) -> dict[str, Any]:
    return {"format": "squad", **keys}


def read(tmp_path: Path, data: str | bytes, name: str = "dev.json", **reader: Any) -> tuple[list[Record], list[str]]:
    choice = {"format": "squad", **reader}
    records, errors = read_all(corpus_of("questions", choice), make_source(tmp_path, {name: data}))
    return records, error_texts(errors)


def test_a_file_of_squad_2(tmp_path: Path) -> None:
    asked = [
        question("q1", ("Ada", 0), ("Ada", 35)),
        question("q2", is_impossible=True, plausible_answers=[{"text": "1843", "answer_start": 22}]),
        question("q3", (" 1843", 21), is_impossible=False),
    ]
    records, errors = read(tmp_path, squad((CONTEXT, asked)))
    assert errors == []
    assert [(one.id, one.group, one.text, one.target) for one in records] == [
        (f"dev:q{i}", None, CONTEXT, f"q{i}?") for i in (1, 2, 3)
    ]
    assert [one.answers for one in records] == [(("Ada", 0), ("Ada", 35)), (), (("1843", 22),)]


def test_documents_are_named_by_their_titles(tmp_path: Path) -> None:
    data = json.loads(squad((CONTEXT, [question("q1")])))
    data["data"].append({"paragraphs": [{"context": "b", "qas": [question("q2")]}]})
    records, errors = read(tmp_path, json.dumps(data), group="document")
    assert not errors
    assert [one.group for one in records] == ["Mills", "dev.json data[1]"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (question("q", ("mill", 13)), "the answer 'mill' does not begin at 13; it begins at 14"),
        (question("q", ("Mill", 14)), "the answer 'Mill' does not begin at 14; it is nowhere in the context"),
        (question("q", ("Café", 31)), "'Café' does not begin at 31, but it does in utf-16: set reader.offsets: utf-16"),
        (question("q", ("Café", 33)), "'Café' does not begin at 33, but it does in bytes: set reader.offsets: bytes"),
        (question("q", ("Ada", -1)), "the answer 'Ada' does not begin at -1; it begins at 0"),
        (question("q", ("Ada", 999)), "the answer 'Ada' does not begin at 999; it begins at 0"),
        (question("q", (" ", 3)), "an answer is empty; a question without an answer has none"),
        (question("q", ("Ada", 0), is_impossible=True), "is_impossible is true, but it has answers"),
        (question("first"), "the id 'first' occurs before; each question needs its own"),
        ({"id": "q", "question": "?"}, "it has no 'answers'; an empty list says that there is none"),
        ({"id": "q", "question": 3, "answers": []}, "'question' holds 3, not text"),
        ({"id": "q", "answers": []}, "'question' holds nothing, not text"),
        ({"question": "?", "answers": []}, "'id' holds nothing, not the question's name"),
        ({"id": "q", "question": "?", "answers": 3}, "'answers' holds 3, not answers"),
        ({"id": "q", "question": "?", "answers": [{"start": 3}]}, "answer 1 of 'answers' is {'start': 3}; it needs"),
        (question("q", ("Ada", "0")), "a start in 'answers' is '0', not a whole number"),
        ({"id": "q", "question": "\ud800", "answers": []}, "'question' holds half a character (U+D800)"),
    ],
)
def test_errors_name_the_file_and_the_place(tmp_path: Path, asked: dict[str, Any], said: str) -> None:
    records, errors = read(tmp_path, squad(("a", []), (CONTEXT, [question("first"), asked, question("last")])))
    (error,) = errors
    assert "dev.json" in error
    assert "data[0].paragraphs[1].qas[1]: " in error
    assert said in error
    assert [one.id for one in records] == ["dev:first", "dev:last"]


def test_all_keys_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    bad = {"id": 7.5, "answers": [{"text": "a", "answer_start": 0}], "is_impossible": True}
    paragraphs = [{"qas": [{"id": "a"}]}, {"context": "c"}, 3, {"context": "c", "qas": [question("ok"), bad]}]
    records, errors = read(tmp_path, json.dumps({"data": [{"title": "x"}, {"paragraphs": paragraphs}]}))
    assert [one.id for one in records] == ["dev:ok"]
    wanted = [
        "data[0].paragraphs is nothing, not a list",
        "data[1].paragraphs[0]: 'context' holds nothing",
        "data[1].paragraphs[0].qas[0]: it has no 'answers'; an empty list says that there is none; 'question' holds",
        "data[1].paragraphs[1].qas is nothing, not a list",
        "data[1].paragraphs[2] is 3, not an object",
        "data[1].paragraphs[3].qas[1]: 'id' holds 7.5, not the question's name; is_impossible is true, but it has",
    ]
    assert len(errors) == len(wanted)
    assert all(part in error for part, error in zip(wanted, errors, strict=True)), errors


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            '{"data": [{"paragraphs": [{"context": "a"}]}]}',
            "data[0].paragraphs[0].qas is nothing, not a list: the file is",
        ),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "data[0].paragraphs[0]: 'context' holds nothing, not text"),
        ('{"data": [7]}', "data[0] is 7, not an object"),
        ("[]", "data is nothing, not a list: the file is not in SQuAD's format"),
        ('{"data":\n [}', "not valid JSON: Expecting value (column 3)"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: str, said: str) -> None:
    _, (error,) = read(tmp_path, data)
    assert said in error


@pytest.mark.parametrize(("unit", "start"), [("characters", 30), ("utf-16", 31), ("bytes", 33), ("search", 0)])
def test_starts_are_counted_in_the_unit_that_the_reader_names(tmp_path: Path, unit: str, start: int) -> None:
    (found,), errors = read(tmp_path, squad((CONTEXT, [question("q", ("Café Ada", start))])), offsets=unit)
    assert not errors
    assert found.answers == (("Café Ada", 30),)
    assert CONTEXT[30:38] == "Café Ada"


def test_a_start_inside_of_a_character_is_wrong() -> None:
    for unit, start in (("utf-16", 29), ("bytes", 30)):
        with pytest.raises(NotFound, match=f"does not begin at {start}"):
            located(CONTEXT, "Café", start, unit)
    with pytest.raises(NotFound, match="is not in the context"):
        located(CONTEXT, "Eve", None, "search")


def test_answers_that_are_not_there_are_left_out_and_counted(tmp_path: Path) -> None:
    wrong = [question("q1", ("Eve", 0)), question("q2", ("Eve", 0), ("Ada", 0)), question("q3")]
    many = [(f"{CONTEXT} {i}", [question(f"p{i}", ("Ada", 0))]) for i in range(40)]
    report, made = prepared(tmp_path, {"all.json": squad((CONTEXT, wrong), *many)}, squad_reader(unmatched="remove"))
    assert report.metrics["removed"]["answer_not_found"] == 1
    assert (report.metrics["raw"], report.metrics["used"]) == (43, 42)
    found = {one["id"]: one["answers"] for split in ("train", "valid", "test") for one in made.records(split)}
    assert "all:q1" not in found
    assert found["all:q2"] == [{"text": "Ada", "start": 0}]
    assert found["all:q3"] == []


def prepared(
    tmp_path: Path, files: dict[str, str | bytes], reader: dict[str, Any], **choices: Any
) -> tuple[Report, PreparedCorpus]:
    corpus = corpus_of("questions", reader, **{"splits": {"valid": 0.2, "test": 0.2}, **choices})
    report = prepare("asked", corpus, make_source(tmp_path / "source", files), tmp_path / "made")
    return report, PreparedCorpus(tmp_path / "made")


def test_no_paragraph_is_in_two_splits(tmp_path: Path) -> None:
    asked = [
        (f"Mill {i} is old.", [question(f"q{i}-{j}", ("old", 9 + len(str(i)))) for j in range(3)]) for i in range(60)
    ]
    _, made = prepared(tmp_path, {"a.json": squad(*asked[:30]), "b.json": squad(*asked[20:])}, squad_reader())
    contexts = {split: {one["context"] for one in made.records(split)} for split in ("train", "valid", "test")}
    assert sum(map(len, contexts.values())) == 60
    assert len(set.union(*contexts.values())) == 60
    assert all(contexts.values())
    assert Counter(one["context"] for one in made.records("train")) == dict.fromkeys(contexts["train"], 3)


def test_train_gives_way_to_the_paragraphs_of_given_sets(tmp_path: Path) -> None:
    shared = (CONTEXT, [question("a", ("Ada", 0))])
    other = [(f"Text {i}", [question(f"t{i}", ("Text", 0))]) for i in range(30)]
    again = (CONTEXT, [question("b", ("1843", 22))])  # another question about a paragraph of the test set
    files: dict[str, str | bytes] = {
        "train.json": squad(again, *other),
        "dev.json": squad(shared),
        "more.json": squad(("x", [question("m")])),
    }
    splits = {"valid": 0.2, "files": {"test": ["dev.json"], "test_more": ["more.json"]}}
    report, made = prepared(tmp_path, files, squad_reader(), splits=splits)
    assert [one["id"] for one in made.records("test")] == ["dev:a"]
    assert [one["id"] for one in made.records("test_more")] == ["more:m"]
    assert report.metrics["removed"]["also_in_valid_or_test"] == 1
    assert "train:b" not in {one["id"] for one in made.records("train")}


# ---------------------------------------------------------------- rewriting


def test_offsets_follow_the_normal_form_the_ends_and_the_masks(tmp_path: Path) -> None:
    plain = "  Caf\u00e9: write to ada@mill.org or Ada, \ufb01rst. "  # é in one character, and a ligature
    context = unicodedata.normalize("NFD", plain)
    answers = [
        (text, context.index(text)) for text in ("Ada", "ada@mill.org", unicodedata.normalize("NFD", "Caf\u00e9"))
    ]
    more = [(f"Ada {i}", [question(f"m{i}", ("Ada", 0))]) for i in range(40)]
    for form, masked, shown in (
        ("NFC", "keep", ["Ada", "ada@mill.org", "Caf\u00e9"]),
        ("NFKC", "mask", ["Ada", "<email>", "Caf\u00e9"]),
        ("none", "keep", [text for text, _ in answers]),
    ):
        _, made = prepared(
            tmp_path / form,
            {"all.json": squad((context, [question("q", *answers)]), *more)},
            squad_reader(),
            normalization=form,
            filters={"personal_data": masked},
        )
        records = [one for split in ("train", "valid", "test") for one in made.records(split)]
        (found,) = [one for one in records if one["id"] == "all:q"]
        assert found["context"].startswith("Caf")
        for one, text in zip(found["answers"], shown, strict=True):
            assert found["context"][one["start"] : one["start"] + len(text)] == one["text"] == text


def test_a_change_across_the_border_takes_the_nearest_occurrence() -> None:
    joined = "e\u0301"  # one character in NFC
    context = f"u u {joined} u"
    form = lambda text: unicodedata.normalize("NFC", text)  # noqa: E731
    assert moved(context, [Answer("e", 4)], form) == ()  # its accent is not part of it, so it is nowhere
    assert moved(context, [Answer("u", 7)], form) == (Answer("u", 6),)
    assert moved(context, [Answer("u", 2)], form) == (Answer("u", 2),)
    assert moved("ab ab", [Answer("ab", 3)], lambda text: text.replace("b a", "bXXa")) == (Answer("ab", 4),)


@given(st.text("ab \u0301e\u00e9\u1100\u1161", max_size=12), st.data())
def test_answers_stay_what_they_were(context: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(context)))
    end = data.draw(st.integers(start, len(context)))
    text = context[start:end]
    if not text.strip():
        return
    answer = located(context, text, start, "characters")
    after = unicodedata.normalize("NFC", context).strip()
    for found in moved(context, [answer], lambda one: unicodedata.normalize("NFC", one).strip()):
        assert after[found.start : found.start + len(found.text)] == found.text
        assert found.text == unicodedata.normalize("NFC", answer.text).strip()


# ---------------------------------------------------------------- records


def flat(tmp_path: Path, record: dict[str, Any], **keys: Any) -> tuple[list[Record], list[str]]:
    reader = {"format": "questions", **keys}
    source = make_source(tmp_path, {"rows.jsonl": json.dumps(record) + "\n"})
    records, errors = read_all(corpus_of("questions", reader), source)
    return records, error_texts(errors)


@pytest.mark.parametrize(
    ("record", "keys"),
    [
        ({"answers": [{"text": "Ada", "start": 0}, {"text": "Ada", "answer_start": 35}]}, {}),
        ({"answers": {"text": ["Ada", "Ada"], "answer_start": [0, 35]}}, {}),  # datasets
        ({"a.text": ["Ada", "Ada"], "a.start": [0, 35]}, {"answers": "a.text", "start": "a.start"}),  # from the hub
    ],
)
def test_each_published_form_of_answers(tmp_path: Path, record: dict[str, Any], keys: dict[str, str]) -> None:
    ((found,), errors) = flat(tmp_path, {"question": "Who?", "context": CONTEXT, **record}, **keys)
    assert not errors
    assert (found.id, found.group, found.text, found.target) == ("rows:1", None, CONTEXT, "Who?")
    assert found.answers == (("Ada", 0), ("Ada", 35))


def test_texts_alone_and_names(tmp_path: Path) -> None:
    record = {"q": "Who?", "c": CONTEXT, "a": "Ada", "s": 35.0, "i": 7, "g": "work"}
    keys = {"question": "q", "context": "c", "answers": "a", "id": "i", "group": "g"}
    ((found,), errors) = flat(tmp_path / "1", record, start="s", **keys)
    assert not errors
    assert (found.id, found.group, found.answers) == ("rows:7", "work", (("Ada", 35),))
    ((found,), _) = flat(tmp_path / "2", record, offsets="search", **keys)
    assert found.answers == (("Ada", 0),)
    _, (error,) = flat(tmp_path / "3", record, **keys)
    assert "the answer 'Ada' has no start; name its key, or set reader.offsets: search" in error
    for number, none in enumerate((None, "", [])):
        ((found,), _) = flat(tmp_path / f"none{number}", {**record, "a": none, "s": None}, start="s", **keys)
        assert (found.answers, found.lost) == ((), False)
    _, (error,) = flat(tmp_path / "4", {**record, "a": ["Ada", "Ada"]}, start="s", **keys)
    assert "'s' has 2 answers but 1 starts" in error
    assert "line 1" in error or ":1" in error


def test_a_start_that_is_no_number_and_a_name_that_occurs_before(tmp_path: Path) -> None:
    rows = [{"n": "x", "question": "Who?", "context": CONTEXT, "answers": [{"text": "Ada", "start": 0}]}] * 2
    endless = json.dumps(rows[0]).replace("0}", "1e999}").replace('"x"', '"y"')  # infinite as Python reads it
    source = make_source(tmp_path, {"rows.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows) + f"{endless}\n"})
    records, errors = read_all(corpus_of("questions", {"format": "questions", "id": "n"}), source)
    assert [one.id for one in records] == ["rows:x"]
    again, infinite = error_texts(errors)
    assert "the id 'x' occurs before; each question needs its own" in again
    assert "a start in 'answers' is inf, not a whole number" in infinite


def test_rows_of_parquet(tmp_path: Path) -> None:
    rows = {
        "id": ["x", "y"],
        "question": ["Who?", "Why?"],
        "context": [CONTEXT, CONTEXT],
        "answers": [{"text": ["Ada"], "answer_start": [0]}, {"text": [], "answer_start": []}],
    }
    (tmp_path / "source").mkdir()
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "source" / "t.parquet")
    data = (tmp_path / "source" / "t.parquet").read_bytes()
    reader = {"format": "questions", "file_format": "parquet", "id": "id"}
    records, errors = read_all(corpus_of("questions", reader), make_source(tmp_path, {"t.parquet": data}))
    assert not errors, error_texts(errors)
    assert [(one.id, one.answers) for one in records] == [("t:x", (("Ada", 0),)), ("t:y", ())]


# ---------------------------------------------------------------- params


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"kind": "text", "reader": squad_reader()}, "reader.format: 'squad' gives questions, but kind is 'text'"),
        ({"reader": {"format": "jsonl"}}, "questions are read by format 'squad' or 'questions', not 'jsonl'"),
        ({"reader": {"format": "text"}}, "format: 'text' cannot give a questions corpus"),
        ({"reader": {"format": "questions", "start": "s", "offsets": "search"}}, "with offsets 'search' it has no use"),
        ({"deduplicate": {"near": True}}, "questions about one context share it, so all but one would be near"),
        ({"splits": {"column": "split"}}, "splits.column: 'squad' files have no columns"),
    ],
)
def test_choices_that_do_not_fit_are_refused(choices: dict[str, Any], said: str) -> None:
    errors: list[str] = []
    data = {"kind": "questions", "reader": squad_reader(), "source": {"kind": "file", "paths": ["x"]}, **choices}
    build(Corpus, data, errors)
    assert any(said in error for error in errors), errors


def test_all_errors_end_prepare(tmp_path: Path) -> None:
    asked = [question(f"q{i}", ("Eve", 0)) for i in range(2)]
    with pytest.raises(UserErrors) as raised:
        prepared(tmp_path, {"a.json": squad((CONTEXT, asked))}, squad_reader())
    assert str(raised.value).count("is nowhere in the context") == 2
