"""Pairs that are tokenised and cut into subwords already, from the files to the scores."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import yaml
from sacrebleu.metrics.bleu import BLEU

from lexmill.base import layout
from lexmill.base.errors import UserErrors
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.params import load
from lexmill.stages import baseline, encode, evaluate, fetch, prepare, tokenizer, train
from lexmill.tokenizers.tokenizer import joined
from tests.kinds.translator.test_training import MODEL, PARAMS, RECIPE
from tests.support.small_project import whole

WORDS = ["der@@", "die", "haus@@", "boot", "-@@", "s", ",", "."]
READER = {"format": "parallel_text", "source": ["a"], "target": ["b"], "tokenized": True}


def write(**changes: object) -> None:
    corpus = PARAMS["corpora"]["pairs"] | {"reader": READER}  # type: ignore[index]
    recipe = RECIPE | {"length": "8 steps", "validate_every": "4 steps", "decided_by": "bleu", "keep": "best"}
    plain = PARAMS | {
        "corpora": {"pairs": corpus | {"splits": {"valid": 0.2, "test": 0.2}}},
        "tokenizers": {"letters": {"corpus": "pairs", "kind": "blanks", "vocab_size": 100, "min_frequency": 1}},
        "models": {"toy": MODEL | {"recipe": recipe} | changes},
    }
    Path("params.yaml").write_text(yaml.safe_dump(whole(plain)), encoding="utf-8")


def test_subwords_are_read_as_they_stand_and_joined_for_the_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draws = random.Random(0)
    lines = [" ".join(draws.choices(WORDS, k=draws.randint(2, 7))) for _ in range(150)]
    for side in ("a", "b"):
        Path(side).write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n", encoding="utf-8")
    Path("xavier.yaml").write_text("name: xavier\nembedding_std: 0\n", encoding="utf-8")
    write()
    for stage, name in ((fetch, "pairs"), (prepare, "pairs"), (tokenizer, "letters"), (encode, "pairs-letters")):
        stage.main(name)
    corpus = PreparedCorpus(layout.corpus("pairs"))
    assert corpus.tokenized
    assert json.loads(layout.metrics("tokenizer", "letters").read_text())["vocab_size"] == 5 + len(WORDS)

    train.main("toy")
    found = json.loads(layout.metrics("train", "toy").read_text())
    assert found["valid_bleu"] >= 0
    evaluate.main("toy")
    rows = [json.loads(line) for line in (layout.predictions("toy") / "rows.jsonl").read_text().splitlines()]
    records = list(corpus.records("test"))
    assert any("@@" in record["target"] for record in records)
    assert [row["source"] for row in rows] == [record["source"] for record in records]
    assert [row["reference"] for row in rows] == [joined(record["target"]) for record in records]
    assert not any("@@" in row["hypothesis"] for row in rows)
    metrics = json.loads(layout.metrics("evaluate", "toy").read_text())["test"]
    scorer = BLEU(tokenize="none", force=True)
    theirs = scorer.corpus_score([row["hypothesis"] for row in rows], [[row["reference"] for row in rows]])
    assert metrics["bleu"] == theirs.score
    assert "tok:none" in metrics["bleu_signature"]

    (name,) = load().baselines
    baseline.main(name)
    copied = json.loads(layout.metrics("baseline", name).read_text())["copy_source"]
    assert copied["bleu"] == pytest.approx(100)


def test_merges_cannot_be_left_out_of_tokens_that_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(recipe=RECIPE | {"subword_dropout": 0.1})
    with pytest.raises(UserErrors, match="'letters' is of kind blanks, this is for bpe"):
        load()
