"""`lexmill evaluate`: a registered model of each kind on files of the user's, held to what others compute."""

import json
import math
import shutil
from pathlib import Path

import pytest
import sacrebleu
import yaml

from lexmill.base.errors import UserError
from lexmill.commands.evaluate import _corpus, evaluate
from lexmill.commands.init.reading import Reading
from lexmill.compute.execution import Execution
from lexmill.registry.loader import load_package

from .plain import plain_params

PAIRS = [("Good day", "Guten Tag"), ("", "leer"), ("The red house is here", "Das rote Haus ist hier"), ("Bye", "Ade")]
TICKETS = [("my bill is wrong", "billing"), ("hello there", "other"), ("a bill", "billing"), ("so long", "unheard of")]


@pytest.fixture
def here(
    published: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execution: Execution
) -> Path:
    """A copy of the published workspace, with its params and settings as files."""
    where = tmp_path / "copy"
    shutil.copytree(published[0], where)
    (where / "params.yaml").write_text(yaml.safe_dump(plain_params()))
    settings = tmp_path / "execution.yaml"
    settings.write_text(f"accelerator: cpu\nthreads: 1\ntracking_uri: {execution.tracking_uri}\n")
    monkeypatch.setenv("LEXMILL_EXECUTION", str(settings))
    monkeypatch.chdir(where)
    return where


def measured(capsys: pytest.CaptureFixture[str], name: str, files: list[str], reading: Reading, **how) -> dict:
    evaluate(name, [Path(file) for file in files], reading, as_json=True, **how)
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["version"], found["files"]) == (name, "1", files)
    return found["metrics"]


def test_a_classifier(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.dat").write_text("".join(f"{label};{text}\n" for text, label in TICKETS * 3))
    choices = {"header": False, "delimiter": ";"}
    reading = Reading({"text": "1", "label": "0"}, format="csv", choices=choices)
    found = measured(capsys, "tickets", ["odd.dat"], reading, rows=Path("rows.jsonl"))
    answers = [
        answer["label"] for answer in load_package("artifacts/packages/tickets").predict([t for t, _ in TICKETS])
    ]
    right = sum(answer == label for answer, (_, label) in zip(answers, TICKETS, strict=True))
    assert found["accuracy"] == right / len(TICKETS)  # repeated texts stay: the set is whole
    assert found["items"] == 12
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert [row["predicted"] for row in rows] == answers * 3
    assert rows[3]["label"] == "unheard of"


def test_a_translator(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, suffix in enumerate(("en", "de")):
        Path(f"news.{suffix}").write_text("".join(pair[side] + "\n" for pair in PAIRS))
    found = measured(capsys, "en_de", ["news.en", "news.de"], Reading({}))
    hypotheses = load_package("artifacts/packages/en_de").predict([source for source, _ in PAIRS])
    references = [[target for _, target in PAIRS]]
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, references, force=True).score, abs=1e-9)
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, references).score, abs=1e-9)
    assert found["items"] == 4


def test_a_language_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "ROMEO: what light is this?\n\nJULIET: none.\n"
    Path("play.txt").write_text(text)
    name = next(name for name, model in plain_params()["models"].items() if model["kind"] == "language_model")
    found = measured(capsys, name, ["play.txt"], Reading({}), rows=Path("rows.jsonl"))
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    nats, size = sum(row["nats"] for row in rows), sum(row["bytes"] for row in rows)
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / size)
    assert 0 < size <= len(text)


def test_people_get_a_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The columns are those of the model's own corpus.
    Path("a.csv").write_text("queue,body\n" + "".join(f"{label},{text}\n" for text, label in TICKETS))
    evaluate("tickets", [Path("a.csv")], Reading({}))
    shown = capsys.readouterr().out
    assert "tickets, version 1, on 4 items" in shown
    assert "accuracy" in shown
    assert "a.csv" in shown


def test_a_file_in_another_encoding_than_the_corpus(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "queue,body\nbilling,the caf\u00e9's bill is wrong\nother,so long\n"
    Path("a.csv").write_bytes(text.encode("utf-16"))
    found = measured(capsys, "tickets", ["a.csv"], Reading({}))
    Path("a.csv").write_bytes(text.encode())
    assert measured(capsys, "tickets", ["a.csv"], Reading({})) == found


@pytest.mark.parametrize(
    ("name", "files", "reading", "sentence"),
    [
        ("tickes", ["a.csv"], Reading({}), "no model 'tickes', did you mean 'tickets'"),
        ("tickets", ["b.csv"], Reading({}), r"b\.csv matches no file"),
        ("tickets", ["a.csv"], Reading({"source": "text"}), "--source: the records of 'tickets' have text and label"),
        ("tickets", ["a.csv"], Reading({"text": "body"}), r"a\.csv:1: there is no column 'body'"),
        ("tickets", ["empty.csv"], Reading({}), "the test set is empty"),
        ("en_de", ["a.csv"], Reading({}), "there is no column 'source'"),
        ("en_de", ["a.en"], Reading({}), "plain text pairs come as two files"),
    ],
)
def test_errors_are_sentences(here: Path, name: str, files: list[str], reading: Reading, sentence: str) -> None:
    Path("a.csv").write_text("text,label\nx,y\n")
    Path("empty.csv").write_text("body,queue\n")
    Path("a.en").write_text("x\n")
    with pytest.raises(UserError, match=sentence):
        evaluate(name, [Path(file) for file in files], reading)


def test_a_version_that_is_not_there(here: Path) -> None:
    Path("a.csv").write_text("text,label\nx,y\n")
    with pytest.raises(UserError, match="'tickets' has no version 7; it has 1"):
        evaluate("tickets", [Path("a.csv")], Reading({}), version="v7")


def test_conversations_are_read_as_those_of_the_models_corpus(tmp_path: Path) -> None:
    (tmp_path / "talks.jsonl").write_text("{}\n")
    own = {
        "kind": "conversation",
        "unit": "talk",
        "languages": ["de"],
        "normalization": "NFKC",
        "reader": {"format": "conversations", "messages": "m", "rejected": "r", "encodings": {"old*": "latin-1"}},
    }
    description = {"name": "chat", "params": {"corpus": own}}
    found = _corpus(description, [tmp_path / "talks.jsonl"], Reading({}), None, tmp_path)
    assert (found.kind, found.unit, found.languages, found.normalization) == ("conversation", "talk", ("de",), "NFKC")
    assert found.source.paths == ("talks.jsonl",)
    reader = found.reader
    assert (reader.messages, reader.rejected, reader.encodings) == ("m", "r", {})
    for reading in (Reading({"text": "t"}), Reading({}, format="csv"), Reading({}, choices={"header": False})):
        with pytest.raises(UserError, match="conversations are read as those of the model's corpus; leave it out"):
            _corpus(description, [tmp_path / "talks.jsonl"], reading, None, tmp_path)
