"""Predictions independent of what runs beside them, long sentences whole, the command, the export to transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import typer
from typer.testing import CliRunner

from lexmill import models, tokenizers
from lexmill.base.errors import UserError
from lexmill.base.tag_schemes import check
from lexmill.kinds.tagger import command
from lexmill.kinds.tagger.alignment import pieces, windows
from lexmill.kinds.tagger.predict import Predictor, tag_sentences
from lexmill.kinds.verbs import Use
from lexmill.models import folder as model_folder
from lexmill.models import pretrained
from lexmill.models.start import start
from lexmill.registry.hugging_face import export
from lexmill.tokenizers.imported import import_tokenizer
from tests.support.tiny_bert import SIZES as SHAPE
from tests.support.tiny_bert import make_tiny_bert

TAGS = ["O", "B-per", "I-per", "B-loc", "I-loc"]
WORDS = ["anna", "pa", "##ris", "went", "to", "un", "##b", ",", "."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bert")
    make_tiny_bert(made / "checkpoint", WORDS)
    import_tokenizer(made / "checkpoint", made / "tokenizer")
    return made


def config_of(tokenizer: tokenizers.Tokenizer, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "tagger",
        "family": "bert",
        "shape": SHAPE,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "corpus": "x",
        "tags": TAGS,
        "scheme": "iob2",
        "pieces": "first",
        "head": "softmax",
        "dropout": 0.0,
        "max_tokens": 12,
    } | changes


def predictor(folder: Path, **changes: Any) -> Predictor:
    tokenizer = tokenizers.load(folder / "tokenizer")
    config = config_of(tokenizer, **changes)
    torch.manual_seed(0)
    module = models.build(config)
    for parameter in module.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return Predictor("ner", config, module.eval(), tokenizer)


SENTENCES = [["anna", "went"], [], ["Paris", "unb", ",", "zzz", "anna"], ["anna", "paris"] * 9, ["\u200d"]]


@pytest.mark.parametrize(("head", "pieces_of"), [("softmax", "first"), ("softmax", "mean"), ("crf", "first")])
def test_no_tag_depends_on_the_other_sentences(folder: Path, head: str, pieces_of: str) -> None:
    one = predictor(folder, head=head, pieces=pieces_of)
    found = tag_sentences(one.module, one.tokenizer, SENTENCES, one.config, 1000)
    assert [len(tags) for tags in found] == [len(words) for words in SENTENCES]
    assert len({tag for tags in found for tag in tags}) > 1
    for words, tags in zip(SENTENCES, found, strict=True):
        assert tag_sentences(one.module, one.tokenizer, [words], one.config, 1) == [tags]
    if head == "crf":
        for tags in found:
            check(tags, "iob2")  # also over the cuts of the long one


def test_a_long_sentence_is_read_in_windows_that_overlap(folder: Path) -> None:
    """Each word has the tag of the window where it has most context; the slow twin reads one window after another."""
    one = predictor(folder)
    words = SENTENCES[3]
    (of_words,) = pieces(one.tokenizer, [words])
    made = windows(0, of_words, one.tokenizer, 12)
    assert len(made) > 2
    tags = []
    for word in range(len(words)):
        inside = [window for window in made if window.start <= word < window.stop]

        def context(window: Any, word: int = word) -> int:
            left = word - window.start if window.start > 0 else 99
            right = window.stop - 1 - word if window.stop < len(words) else 99
            return min(left, right)

        best = max(inside, key=context)
        inputs = (
            torch.tensor([best.tokens]),
            torch.ones(1, len(best.tokens), dtype=torch.bool),
            torch.tensor([best.words]),
        )
        with torch.inference_mode():
            logits = one.module(*inputs).emissions[0]
        tags.append(TAGS[int(logits[word - best.start].argmax())])
    assert tag_sentences(one.module, one.tokenizer, [words], one.config, 1000) == [tags]


def test_bioes_is_answered_as_iob2(folder: Path) -> None:
    tags = ["O", *(f"{prefix}-{kind}" for kind in ("loc", "per") for prefix in "BIES")]
    one = predictor(folder, tags=tags, scheme="bioes", head="crf")
    for answer in one.predict([" ".join(words) for words in SENTENCES if words]):
        check(answer["tags"], "iob2")
        for entity in answer["entities"]:
            assert entity["text"] == " ".join(answer["words"][entity["start"] : entity["stop"]])
            assert answer["tags"][entity["start"]] == f"B-{entity['type']}"


def test_the_words_of_a_text(folder: Path) -> None:
    one = predictor(folder)
    plain, split = (
        one.predict(["Anna's U.S. trip, (to) don't."], params)[0] for params in ({}, {"split_punctuation": True})
    )
    assert plain["words"] == ["Anna's", "U.S.", "trip,", "(to)", "don't."]
    assert split["words"] == ["Anna's", "U.S", ".", "trip", ",", "(", "to", ")", "don't", "."]
    assert len(split["tags"]) == len(split["words"])
    assert one.predict([""]) == [{"words": [], "tags": [], "entities": []}]
    assert one.example(one.config).keys() == plain.keys()


class _Answers:
    """Gives the words of each text the same tags."""

    def texts(self, given: list[str] | None) -> list[str]:
        return given or []

    def model(self, kind: str, name: str | None) -> _Answers:
        assert kind == "tagger"
        return self

    def predict(self, texts: list[str], params: dict[str, Any]) -> list[dict[str, Any]]:
        assert params == {"split_punctuation": False}
        return [{"words": text.split(), "tags": ["X"] * len(text.split()), "entities": []} for text in texts]

    def show(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(line)


def test_the_command_prints_what_it_can_read_again() -> None:
    app = typer.Typer()
    command.add(app, cast(Use, _Answers()))
    result = CliRunner().invoke(app, ["a b", "c"], catch_exceptions=False)
    assert result.stdout == "a\tX\nb\tX\n\nc\tX\n\n"
    as_json = CliRunner().invoke(app, ["a b", "--json"], catch_exceptions=False)
    assert json.loads(as_json.stdout) == {"words": ["a", "b"], "tags": ["X", "X"], "entities": []}


def test_transformers_gives_an_exported_tagger_the_same_tags(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    one = predictor(folder)
    made = tmp_path / "model"
    model_folder.save(made, one.config, one.module)
    import_tokenizer(folder / "checkpoint", made / "tokenizer")
    export(made, tmp_path / "there", "ner")
    theirs = AutoModelForTokenClassification.from_pretrained(tmp_path / "there")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "there")
    assert theirs.config.id2label == dict(enumerate(TAGS))
    for words in (["anna", "went", "to", "Paris", "."], ["unb", ",", "zzz", "paris"]):
        batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        numbers = batch.word_ids()
        first = [i for i, word in enumerate(numbers) if word is not None and numbers[i - 1] != word]
        with torch.inference_mode():
            logits = theirs(**batch).logits[0]
        found = [theirs.config.id2label[int(logits[i].argmax())] for i in first]
        assert tag_sentences(one.module, one.tokenizer, [words], one.config, 100) == [found]
        (window,) = windows(0, pieces(one.tokenizer, [words])[0], one.tokenizer, 12)
        assert window.tokens == batch["input_ids"][0].tolist()
        inputs = (
            torch.tensor([window.tokens]),
            torch.ones(1, len(window.tokens), dtype=torch.bool),
            torch.tensor([window.words]),
        )
        torch.testing.assert_close(one.module(*inputs).emissions[0], logits[first], rtol=1e-4, atol=1e-5)
    card = (tmp_path / "there" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: token-classification" in card
    # And back: another training starts from its encoder.
    again = predictor(folder, tags=["X", "Y"], scheme="none")
    start(again.module, again.config, tmp_path / "there", folder / "tokenizer")
    for name, value in one.module.encoder.state_dict().items():
        assert torch.equal(again.module.encoder.state_dict()[name], value), name
    assert pretrained.read(made).state.keys() == one.module.encoder.state_dict().keys()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"head": "crf"},
            r"a tagger with a chain over its tags \(recipe.head: crf\), which transformers does not have",
        ),
        ({"pieces": "mean"}, "a tagger with words that are the mean of their pieces"),
    ],
)
def test_what_transformers_cannot_compute_is_refused(
    folder: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    one = predictor(folder, **changes)
    model_folder.save(tmp_path / "model", one.config, one.module)
    import_tokenizer(folder / "checkpoint", tmp_path / "model" / "tokenizer")
    with pytest.raises(UserError, match=message):
        export(tmp_path / "model", tmp_path / "there", "ner")
