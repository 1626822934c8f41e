"""`lexmill neighbours` on a workspace's model and on champions of every kind."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from lexmill import cli
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.commands.neighbours import parsed
from lexmill.models import build, folder
from lexmill.params import parse
from lexmill.tokenizers.kinds import assemble, word_model
from tests.support.prepared import write_prepared
from tests.support.royal import ROYAL, embeddings

from .plain import plain_params

QUERY = ["king", "-", "man", "+", "woman"]


def prepare(root: Path, chosen: dict[str, Any]) -> None:
    (root / "params.yaml").write_text(yaml.safe_dump(chosen))
    (root / "conf/execution").mkdir(parents=True)
    (root / "conf/execution/local.yaml").write_text("tracking_uri: sqlite:///mlflow.db\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a trained model that nobody registered: its embeddings are made by hand."""
    chosen = plain_params()
    prepare(tmp_path, chosen)
    shape = asdict(parse(chosen).models["gpt"].shape)
    config = {"kind": "language_model", "family": "gpt", "shape": shape, "vocab_size": 5 + len(ROYAL)}
    module = build(config)
    with torch.no_grad():
        module.get_parameter("embedding.weight").copy_(torch.from_numpy(embeddings(16)))
    made = tmp_path / layout.model("gpt")
    folder.save(made, {**config, "corpus": "plays"}, module)
    (made / "tokenizer").mkdir()
    tokenizer = assemble("word", word_model([f" {word}" for word in ROYAL]), lowercase=False)
    tokenizer.save(str(made / "tokenizer/tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, ["neighbours", *arguments])
    if isinstance(done.exception, UserError):
        return done.exception.exit_code, done.stdout, str(done.exception)
    return done.exit_code, done.stdout, done.stderr


def test_king_without_man_with_woman_is_queen(here: Path) -> None:
    code, out, said = run(*QUERY, "--model", "gpt", "--count", "2")
    assert (code, out.split("\n")[0]) == (0, "queen\t1.0000")
    assert out.count("\n") == 2
    assert "artifacts/models/gpt, among 8 words: the words of the vocabulary" in said
    assert "(artifacts/corpora/plays is not prepared)" in said
    assert run(" ".join(QUERY), "--model", "gpt", "--count", "2")[1] == out


def test_answers_are_words_of_the_prepared_corpus(here: Path) -> None:
    texts = [{"text": "queen king king woman man, man sword; nobody"}]
    write_prepared(here / layout.corpus("plays"), "text", {"train": texts, "test": [{"text": "tree"}]})
    code, out, said = run("king", "--model", "gpt", "--json")
    assert code == 0
    assert "among 5 words: the most frequent words of artifacts/corpora/plays" in said
    found = json.loads(out)
    assert found["model"] == "gpt"
    assert found["query"] == [{"sign": 1, "word": "king"}]
    assert {one["word"] for one in found["neighbours"]} == {"queen", "woman", "man", "sword"}
    cosines = [one["cosine"] for one in found["neighbours"]]
    assert cosines == sorted(cosines, reverse=True)
    assert run("king - man", "--model", "gpt", "--json")[1].count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody", "--model", "gpt"], "does not know the word 'nobody'"),
        (["", "--model", "gpt"], "the word is empty; write words with"),
        (["king", "-", "--model", "gpt"], "'king -' is no sum of words; write words with + or - between them"),
        (["king - - man", "--model", "gpt"], "is no sum of words"),
        (["king queen", "--model", "gpt"], "is no sum of words"),
        (["king", "queen", "man", "--model", "gpt"], "is no sum of words"),
        (["king - king", "--model", "gpt"], "cancel each other"),
        (["king"], "there are several models; say which with --model: en_de, gpt, tickets"),
        (["king", "--model", "gtp"], "params.yaml has no model 'gtp', did you mean 'gpt'?"),
        (["king", "--model", "en_de"], "the model 'en_de' is not trained yet; `lexmill run` trains it"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_errors_are_one_sentence(here: Path, arguments: list[str], message: str) -> None:
    code, out, said = run(*arguments)
    assert (code, out) == (2, "")
    assert message in said
    assert "\n" not in said


def test_a_query_is_read() -> None:
    assert parsed(["king", "-", "man", "+", "woman"]) == [(1, "king"), (-1, "man"), (1, "woman")]
    assert parsed(["well-known  + C++"]) == [(1, "well-known"), (1, "C++")]


@pytest.mark.parametrize("name", ["gpt", "tickets", "en_de"])
def test_champions_of_every_kind(
    published: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    where = tmp_path / "copy"
    shutil.copytree(published[0], where)
    shutil.rmtree(where / "artifacts/corpora")
    chosen = plain_params()
    prepare(where, chosen)
    corpus = where / layout.corpus(chosen["models"][name]["data"]["corpus"])
    write_prepared(corpus, "text", {"train": [{"text": "king kings queen"}]})
    shutil.rmtree(where / "artifacts/models")  # the champion is asked
    monkeypatch.chdir(where)
    code, out, said = run("king", "--model", name)
    assert code == 0
    assert {line.split("\t")[0] for line in out.splitlines()} == {"kings", "queen"}
    assert f"artifacts/packages/{name}/model, among 3 words" in said
