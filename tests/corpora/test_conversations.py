"""Corpora of conversations: the forms in which they are published, errors with their line, what prepare stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lexmill.base.strict import build
from lexmill.corpora.prepared import PreparedCorpus, texts_of
from lexmill.corpora.preparing.prepare import prepare
from lexmill.params.corpora import Corpus
from lexmill.params.readers import ConversationsReader
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all

ASKED = [("system", "Be brief."), ("user", "How are you?")]
WHOLE = [{"role": role, "content": content} for role, content in [*ASKED, ("assistant", "Fine.")]]


def reader(**keys: str) -> dict[str, Any]:
    return {"format": "conversations", **keys}


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(
    ("keys", "record"),
    [
        ({"messages": "m", "rejected": "r"}, {"m": WHOLE, "r": "Bad."}),
        ({"messages": "c", "rejected": "r"}, {"c": WHOLE, "r": [*WHOLE[:2], {"role": "assistant", "content": "Bad."}]}),
        (
            {"messages": "conversations", "rejected": "r"},
            {
                "conversations": [
                    {"from": "system", "value": "Be brief."},
                    {"from": "human", "value": "How are you?"},
                    {"from": "gpt", "value": "Fine."},
                ],
                "r": [{"from": "gpt", "value": "Bad."}],
            },
        ),
        ({"prompt": "p", "answer": "a", "rejected": "r"}, {"p": WHOLE[:2], "a": "Fine.", "r": "Bad."}),
        ({"prompt": "p", "answer": "a", "rejected": "r"}, {"p": WHOLE[:2], "a": WHOLE, "r": "Bad."}),
    ],
)
def test_each_published_form_gives_the_same_record(
    tmp_path: Path, keys: dict[str, str], record: dict[str, Any]
) -> None:
    records, errors = read_all(corpus_of("conversation", reader(**keys)), make_source(tmp_path, {"t": lines(record)}))
    assert not errors, error_texts(errors)
    (found,) = records
    assert (found.turns, found.target, found.rejected) == (tuple(ASKED), "Fine.", "Bad.")
    assert found.sides == ("Be brief. How are you?", "Fine.", "Bad.")


def test_a_prompt_and_an_answer_as_texts(tmp_path: Path) -> None:
    data = json.dumps([{"p": "How are you?", "a": "Fine.", "g": 7}])
    choice = reader(prompt="p", answer="a", group="g", file_format="json")
    ((found,), errors) = read_all(corpus_of("conversation", choice), make_source(tmp_path, {"t.json": data}))
    assert not errors
    assert (found.id, found.group) == ("t:1", "7")
    assert (found.turns, found.target, found.rejected) == ((("user", "How are you?"),), "Fine.", None)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"m": "Hello", "r": "x"}, "'m' holds 'Hello', not a list of messages"),
        ({"m": [], "r": "x"}, "'m' holds [], not a list of messages"),
        ({"m": [{"role": "user"}], "r": "x"}, "message 1 of 'm' is {'role': 'user'}; it needs 'role' and 'content'"),
        ({"m": [{"role": "bot", "content": "a"}], "r": "x"}, "message 1 of 'm' has role 'bot', not system, user or"),
        ({"m": [{"role": "user", "content": 3}], "r": "x"}, "'m' (message 1) 'content' holds 3, not text"),
        ({"m": WHOLE[:2], "r": "x"}, "'m' ends with a message of the user; an answer of the assistant must be last"),
        ({"m": [WHOLE[0], WHOLE[2]], "r": "x"}, "'m' answers nobody: no message of the user comes before the last one"),
        ({"m": [*WHOLE[:2], WHOLE[0], WHOLE[2]], "r": "x"}, "'m' has a message of the system that is not the first"),
        ({"m": WHOLE, "r": WHOLE[1:]}, "'r' does not begin with the messages that it answers"),
        ({"m": WHOLE, "r": [*WHOLE[:2], WHOLE[1]]}, "'r' is not one answer to the same messages"),
        ({"m": WHOLE, "r": None}, "'r' holds nothing, not text"),
        ({"m": WHOLE}, "there is no column 'r'; columns: m"),
    ],
)
def test_errors_name_the_line_and_the_message(tmp_path: Path, record: dict[str, Any], said: str) -> None:
    data = lines({"m": WHOLE, "r": "Bad."}, record)
    choice = reader(messages="m", rejected="r")
    _, errors = read_all(corpus_of("conversation", choice), make_source(tmp_path, {"t.jsonl": data}))
    (found,) = error_texts(errors)
    assert "t.jsonl:2: " in found
    assert said in found


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "messages: missing"),
        ({"prompt": "p"}, "messages: missing"),
        ({"messages": "m", "answer": "a"}, "messages: prompt and answer take its place"),
    ],
)
def test_keys_that_do_not_belong_together(keys: dict[str, str], said: str) -> None:
    errors: list[str] = []
    assert build(ConversationsReader, reader(**keys), errors) is None
    assert said in errors[0]


@pytest.mark.parametrize(
    ("kind", "form"), [("text", reader(messages="m")), ("conversation", {"format": "jsonl", "text": "t"})]
)
def test_a_reader_fits_its_kind_of_corpus_alone(kind: str, form: dict[str, Any]) -> None:
    errors: list[str] = []
    build(Corpus, {"kind": kind, "reader": form, "source": {"kind": "file", "paths": ["x"]}}, errors)
    assert "reader.format" in errors[0]


def made(tmp_path: Path, records: list[dict[str, Any]], **choices: Any) -> PreparedCorpus:
    corpus = corpus_of("conversation", reader(messages="m", rejected="r"), **choices)
    source = make_source(tmp_path / "source", {"t.jsonl": lines(*records)})
    prepare("talks", corpus, source, tmp_path / "made")
    return PreparedCorpus(tmp_path / "made")


def talk(number: int, answer: str = "Yes.", rejected: str = "No.") -> dict[str, Any]:
    messages = [{"role": "user", "content": f" Is this {number}? "}, {"role": "assistant", "content": answer}]
    return {"m": messages, "r": rejected}


def test_prepare_stores_messages_stripped_and_keeps_equal_prompts_in_one_split(tmp_path: Path) -> None:
    records = [talk(i) for i in range(40)] + [talk(i, "Perhaps.") for i in range(40)] + [talk(3)]
    corpus = made(tmp_path, records, splits={"valid": 0.3, "test": 0.3})
    split_of: dict[str, str] = {}
    found = 0
    for split in ("train", "valid", "test"):
        for record in corpus.records(split):
            asked, answer = record["messages"]
            assert asked["content"] == asked["content"].strip()
            assert answer["role"] == "assistant"
            assert texts_of(record) == (asked["content"], answer["content"], "No.")
            assert split_of.setdefault(asked["content"], split) == split
            found += 1
    assert found == 80  # the repeated one is a duplicate
    assert corpus.kind == "conversation"


def test_a_pair_with_another_rejected_answer_is_no_duplicate(tmp_path: Path) -> None:
    records = [talk(i) for i in range(40)] + [talk(1, rejected="Never.")]
    corpus = made(tmp_path, records, splits={"valid": 0.3, "test": 0.3})
    assert sum(corpus.count(split) for split in ("train", "valid", "test")) == 41


def test_personal_data_is_masked_in_every_message(tmp_path: Path) -> None:
    mail = "ask ann@example.org"
    records = [
        {"m": [{"role": "user", "content": f"{i} {mail}"}, {"role": "assistant", "content": mail}], "r": mail}
        for i in range(40)
    ]
    corpus = made(tmp_path, records, splits={"valid": 0.3, "test": 0.3}, filters={"personal_data": "mask"})
    for split in ("train", "valid", "test"):
        for record in corpus.records(split):
            assert "ann@" not in json.dumps(record)
            assert record["rejected"] == record["messages"][1]["content"] == "ask <email>"
