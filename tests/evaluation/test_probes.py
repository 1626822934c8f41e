"""Minimal pairs and last words: files read line by line, metrics by hand, sentences scored beside slow twins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lexmill import kinds, models, tokenizers
from lexmill.base.budgets import MAX_LINE_BYTES
from lexmill.base.errors import UserError, UserErrors
from lexmill.evaluation import probes
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.encoder.predict import Predictor as Filler
from lexmill.kinds.language_model.predict import Predictor as Writer
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save

HOW = Resampling(samples=200, confidence=0.9, seed=1)
BLIMP = [
    {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps.", "UID": "agreement"},
    {"sentence_good": "A cat sleeps.", "sentence_bad": "A cat sleep.", "UID": "agreement"},
    {"sentence_good": "Who left?", "sentence_bad": "Left who?", "UID": "questions"},
]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_pairs_are_read_from_json_lines_and_tables(tmp_path: Path) -> None:
    lines = "".join(json.dumps(one) + "\n" for one in BLIMP)
    found = probes.read_pairs(write(tmp_path / "a.jsonl", lines), probes.Columns())
    assert [(one["good"], one["bad"], one["phenomenon"]) for one in found] == [tuple(one.values()) for one in BLIMP]
    table = '\ufeffyes\tno\r\n"A cat\u2028sleeps.\tA cat sleep.\r\n'
    (one,) = probes.read_pairs(write(tmp_path / "a.tsv", table), probes.Columns("yes", "no", "what"))
    assert one == {"good": '"A cat\u2028sleeps.', "bad": "A cat sleep.", "phenomenon": "", "id": "2"}
    table = 'yes,no,what\n"Yes, sir.","Yes; sir.",commas\n'
    (one,) = probes.read_pairs(write(tmp_path / "a.csv", table), probes.Columns("yes", "no", "what"))
    assert (one["good"], one["phenomenon"]) == ("Yes, sir.", "commas")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"sentence_good": "a"}\n', r"a.jsonl.*1.*no sentence in column 'sentence_bad'.*sentence_good"),
        ("a.jsonl", '\n{"sentence_good": "a", "sentence_bad": "a"}\n', "a.jsonl.*2.*both sentences are 'a'"),
        ("a.jsonl", "a b\n", "is not a JSON object"),
        ("a.tsv", "sentence_good\tsentence_bad\nx\n", "no sentence in column 'sentence_bad'"),
        ("a.jsonl", "[" * 100_000 + "\n", "is not a JSON object"),
        ("a.csv", f"sentence_good,sentence_bad\n.,{'x' * (MAX_LINE_BYTES + 1)}\n", "a.csv.*2.*not a table: field"),
        ("a.jsonl", "\n", "the file holds no pair"),
        ("a.txt", "x\n", "its name ends in none of .jsonl, .tsv, .csv"),
    ],
)
def test_wrong_pairs_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises((UserError, UserErrors), match=message):
        probes.read_pairs(write(tmp_path / name, text), probes.Columns())
    with pytest.raises(UserError, match="does not exist"):
        probes.read_pairs(tmp_path / "none.jsonl", probes.Columns())
    with pytest.raises(UserError, match="cannot be read"):
        probes.read_pairs(tmp_path, probes.Columns())
    (tmp_path / "latin.csv").write_bytes(b"sentence_good\n\xe9\n")
    with pytest.raises(UserError, match="byte 15 is not UTF-8"):
        probes.read_pairs(tmp_path / "latin.csv", probes.Columns())


def test_texts_are_cut_before_their_last_word(tmp_path: Path) -> None:
    found = probes.read_texts(write(tmp_path / "a.txt", "To be or  not \n\nthe end\n"), "text")
    assert found == [("To be or  ", "not"), ("the ", "end")]
    assert probes.read_texts(write(tmp_path / "a.jsonl", '{"text": "the end"}\n'), "text") == [("the ", "end")]
    with pytest.raises(UserErrors, match=r"a.txt.*2.*'word' is not two words or more"):
        probes.read_texts(write(tmp_path / "a.txt", "the end\nword\n"), "text")
    with pytest.raises(UserErrors, match="None is not two words or more"):
        probes.read_texts(write(tmp_path / "a.jsonl", '{"x": 1}\n'), "text")
    with pytest.raises(UserError, match="holds no text"):
        probes.read_texts(write(tmp_path / "a.txt", "\n"), "text")


class Lengths:
    """Finds a longer text less likely, and completes words of three letters."""

    def log_probabilities(self, model: Any, texts: Sequence[str]) -> list[float]:
        return [-float(len(text)) for text in texts]

    def last_words(self, model: Any, texts: Sequence[tuple[str, str]]) -> list[tuple[bool, float]]:
        return [(len(word) == 3, float(len(word))) for _, word in texts]


def test_metrics_by_hand() -> None:
    """The first acceptable sentence is shorter, the second longer, the third as long: 1, 0 and a half."""
    pairs = [
        {"id": str(i), "good": one["sentence_good"], "bad": one["sentence_bad"], "phenomenon": one["UID"]}
        for i, one in enumerate(BLIMP * 10)
    ]
    found = probes.pair_metrics(probes.pair_rows(Lengths(), None, pairs), HOW)
    assert {name: (one["accuracy"], one["pairs"]) for name, one in found.items()} == {
        "all": (0.5, 30),
        "agreement": (0.5, 20),
        "questions": (0.5, 10),
    }
    assert found["agreement"]["accuracy_low"] < 0.5 < found["agreement"]["accuracy_high"]
    assert found["questions"]["accuracy_low"] == found["questions"]["accuracy_high"] == 0.5
    words = probes.word_metrics(probes.word_rows(Lengths(), None, [("the ", "end"), ("a ", "word")] * 5), HOW)
    assert (words["accuracy"], words["nats_per_word"], words["words"]) == (0.5, 3.5, 10)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizers.Tokenizer:
    made = tmp_path_factory.mktemp("tokenizer")
    save(assemble("byte", byte_model(), lowercase=False), made)
    return tokenizers.load(made)


def network(config: dict[str, Any]) -> Any:
    torch.manual_seed(1)
    module = models.build({"vocab_size": 261, **config})
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module.eval()


GPT = {"family": "gpt", "shape": {"n_layer": 1, "n_head": 2, "d_model": 16, "context": 48}}
BERT = {
    "family": "bert",
    "shape": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 48},
    "pretraining": {"objective": "masked", "pairs": "none", "generator": {}},
}
TEXTS = ["The cats sleep.", "x", "", "To be, or not to be"]


@torch.no_grad()
def test_a_language_model_scores_sentences_as_token_by_token(tokenizer: tokenizers.Tokenizer) -> None:
    module = network(GPT)
    model, scored = Writer("gpt", {"kind": "language_model"}, module, tokenizer), kinds.find("language_model")
    found = scored.module("sentences").log_probabilities(model, TEXTS)
    for text, value in zip(TEXTS, found, strict=True):
        ids, slow = [tokenizer.eos_id], 0.0
        for token in [*tokenizer.encode(text), tokenizer.eos_id]:
            slow += float(module(torch.tensor([ids]))[0, -1].log_softmax(0)[token])
            ids.append(token)
        assert value == pytest.approx(slow, rel=1e-4)
    (other,) = scored.module("sentences").last_words(model, [("To be, or ", "not")])
    nats = 0.0
    ids = [tokenizer.eos_id, *tokenizer.encode("To be, or")]
    right = True
    for token in tokenizer.encode(" not"):
        logits = module(torch.tensor([ids]))[0, -1]
        nats -= float(logits.log_softmax(0)[token])
        right = right and int(logits.argmax()) == token
        ids.append(token)
    assert other == (right, pytest.approx(nats, rel=1e-4))
    with pytest.raises(UserError, match=r"the word '.*' has 61 tokens, but the context is 48"):
        scored.module("sentences").last_words(model, [("a ", "b" * 60)])


@torch.no_grad()
def test_an_encoder_scores_sentences_by_one_mask_at_a_time(tokenizer: tokenizers.Tokenizer) -> None:
    module = network(BERT)
    model = Filler("bert", {"kind": "encoder", "max_tokens": 48}, module, tokenizer)
    scored = kinds.find("encoder").module("sentences")

    def logits(ids: list[int]) -> Any:
        read = torch.tensor([[tokenizer.bos_id, *ids, tokenizer.eos_id]])
        every = torch.ones_like(read, dtype=torch.bool)
        return module(read, every, every)[0][1:-1]

    for text, value in zip(TEXTS, scored.log_probabilities(model, TEXTS), strict=True):
        ids, slow = tokenizer.encode(text), 0.0
        for i, token in enumerate(ids):
            slow += float(logits([*ids[:i], 4, *ids[i + 1 :]])[i].log_softmax(0)[token])
        assert value == pytest.approx(slow, rel=1e-4)
    before, word = tokenizer.encode("To be, or"), tokenizer.encode(" not")
    at = logits([*before, *[4] * len(word)])[len(before) :]
    nats = -sum(float(row.log_softmax(0)[token]) for row, token in zip(at, word, strict=True))
    best = at.argmax(1).tolist()
    assert scored.last_words(model, [("To be, or ", "not")]) == [(best == word, pytest.approx(nats, rel=1e-4))]
    (other,) = scored.last_words(model, [("a" * 100 + " ", "not")])
    assert other[1] == pytest.approx(scored.last_words(model, [("a" * 42 + " ", "not")])[0][1], rel=1e-4)
    with pytest.raises(UserError, match=r"the word '.*' has 61 tokens, but the encoder reads 46"):
        scored.last_words(model, [("a ", "b" * 60)])


def test_a_likeliest_word_is_right(tokenizer: tokenizers.Tokenizer) -> None:
    """A model that always writes the same byte completes words of that byte."""
    module = network(GPT)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module.norm.bias[0] = 1.0
        module.embedding.weight[tokenizer.encode("e")[0], 0] = 1.0
    model = Writer("gpt", {"kind": "language_model"}, module, tokenizer)
    found = kinds.find("language_model").module("sentences").last_words(model, [("x", "eee"), ("x", "ene")])
    assert [right for right, _ in found] == [True, False]
