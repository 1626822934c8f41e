"""An encoder through every stage on made sentences: trained, evaluated, beside baselines, packaged, started from."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lexmill.base import layout, storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.encoding import encode_corpus
from lexmill.evaluation.rows import read_rows
from lexmill.models import folder as model_folder
from lexmill.registry.loader import load_package
from lexmill.stages import baseline, evaluate, register, report, train
from lexmill.tokenizers import load, saving
from lexmill.tokenizers.training import train as train_tokenizer
from tests.support.prepared import write_prepared
from tests.support.small_project import whole

FORMS = {"king": "rules", "lord": "dines", "hand": "moves", "ship": "sails"}
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 16,
    "initializer_range": 0.05,
}
RECIPE: dict[str, Any] = {
    "method": "gradient",
    "optimizer": {"name": "adamw", "lr": 0.01},
    "schedule": {"name": "linear", "warmup": "10 %"},
    "length": "150 steps",
    "batch": 32,
    "validate_every": "50 steps",
    "keep": "last",
}
BASELINES = "encoder-rows-words"


def sentences(count: int, seed: int) -> list[dict[str, str]]:
    """What a word is follows from a word two places away, which neighbours do not predict: the king now rules here."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        noun = draw.choice(list(FORMS))
        found.append({"text": f"the {noun} {draw.choice(['now', 'then', 'still'])} {FORMS[noun]} here"})
    return found


def model(recipe: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    made = {
        "kind": "encoder",
        "family": "bert",
        "shape": SHAPE,
        "data": {"corpus": "rows", "tokenizer": "words", "max_tokens": 12},
        "start": "gpt2.yaml",
        "recipe": RECIPE | (recipe or {}),
        "evaluate": {"pseudo_tokens": 60},
    }
    return made | changes


def write_params(**models: Any) -> None:
    file = {"kind": "file", "paths": ["rows.txt"]}
    text = {"kind": "text", "source": file, "reader": {"format": "text", "document": "line"}}
    labelled = {"kind": "labelled", "source": file, "reader": {"format": "jsonl", "text": "text", "label": "label"}}
    params = {
        "experiment": "test",
        "data_seed": 1,
        "training_seed": 2,
        "evaluation": {"bootstrap_samples": 100},
        "corpora": {"rows": text, "marks": labelled},
        "tokenizers": {"words": {"corpus": "rows", "kind": "word", "vocab_size": 100}},
        "models": models,
    }
    Path("params.yaml").write_text(yaml.safe_dump(whole(params)), encoding="utf-8")


def encode(**splits: list[dict[str, str]]) -> None:
    """The corpus, its tokenizer and its token shards, as the stages before leave them."""
    write_prepared(layout.corpus("rows"), "text", splits)
    backend = train_tokenizer("word", lambda: (row["text"] for row in splits["train"]), vocab_size=100, lowercase=True)
    layout.tokenizer("words").mkdir(parents=True)
    saving.save(backend, layout.tokenizer("words"))
    tokenizer, corpus = load(layout.tokenizer("words")), PreparedCorpus(layout.corpus("rows"))
    with storage.new_folder(layout.tokens("rows", "words")) as folder:
        records = {split: corpus.records(split) for split in splits}
        encode_corpus(folder, "text", records, tokenizer, storage.sha256_file(corpus.folder / "manifest.json"))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\ntracking_uri: sqlite:///mlflow.db\n", encoding="utf-8")
    Path("gpt2.yaml").write_text("name: gpt2\nstd: 0.05\n", encoding="utf-8")
    Path("sources.lock.yaml").write_text("corpora: {}\ncheckpoints: {}\n", encoding="utf-8")
    write_params(bert=model())
    encode(train=sentences(400, 0), valid=sentences(40, 1), test=sentences(60, 2))
    return tmp_path


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def contents() -> dict[str, bytes]:
    roots = (Path("metrics"), Path("reports"), Path("artifacts"))
    return {str(path): path.read_bytes() for root in roots for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.usefixtures("workspace")
def test_the_whole_thread() -> None:
    for _ in range(2):
        train.main("bert")
        evaluate.main("bert")
        baseline.main(BASELINES)
        register.main("bert")
        first = locals().get("first", contents())
    assert contents() == first, "the same bytes twice"

    assert (layout.plots("bert") / "words.png").is_file()
    trained = read(layout.metrics("train", "bert"))
    config, module = model_folder.load(layout.model("bert"))
    assert config["pretraining"] == {"objective": "masked", "pairs": "none", "generator": {}}
    assert trained["parameters"] == sum(parameter.numel() for parameter in module.encoder.parameters())
    assert trained["valid_loss"] == trained["valid_masked_loss"]

    measured, baselines = read(layout.metrics("evaluate", "bert"))["test"], read(layout.metrics("baseline", BASELINES))
    rows = read_rows(layout.predictions("bert") / "rows.jsonl")
    assert len(rows) == 60
    assert measured["masked_tokens"] == 60 * 5 == sum(row["targets"] for row in rows)
    assert measured["masked_nats"] == pytest.approx(sum(row["nats"] for row in rows) / 300)
    assert measured["masked_nats_low"] < measured["masked_nats"] < measured["masked_nats_high"]
    assert measured["pseudo_perplexity"] > 1
    assert measured["pseudo_tokens"] == 60, "as many as were asked for: texts of 5 tokens each"
    # Only `now`, `then` and `still` cannot be predicted: ln 3 nats every fifth token.
    assert measured["masked_nats"] < 0.5 < baselines["neighbours"]["masked_nats"] < baselines["unigram"]["masked_nats"]
    for name in ("unigram", "neighbours"):
        theirs = read_rows(layout.predictions(f"baseline-{BASELINES}") / f"{name}.jsonl")
        assert [(row["id"], row["targets"]) for row in theirs] == [(row["id"], row["targets"]) for row in rows]

    report.main()
    page = (layout.REPORTS / "index.html").read_text(encoding="utf-8")
    assert "Words that it fills in" in page
    assert "[MASK]" in page

    package = load_package(layout.package("bert"))
    one, two, none = package.predict(
        ["the king now [MASK] here", "the [MASK] [MASK] sails here", "the king"], {"top": 2}
    )
    assert [(filled["token"], filled["text"]) for filled in one[:1]] == [("rules", "the king now rules here")]
    assert [filled["mask"] for filled in two] == [1, 1, 2, 2]
    assert two[0]["text"] == "the ship [MASK] sails here"
    assert len(none) == 2
    card = (layout.package("bert") / "card.md").read_text(encoding="utf-8")
    assert "An encoder that fills in masked words, made to" in card
    assert "lexmill fill" in card


@pytest.mark.usefixtures("workspace")
def test_a_classifier_starts_from_it() -> None:
    """The pre-trained one starts with the encoder's weights, and learns labels from them."""
    marks = [{**row, "label": "king" if "king" in row["text"] else "other"} for row in sentences(60, 3)]
    write_prepared(layout.corpus("marks"), "labelled", {"train": marks[:40], "valid": marks[40:50], "test": marks[50:]})
    tuned = model() | {
        "kind": "classifier",
        "data": {"corpus": "marks", "tokenizer": "words", "max_tokens": 12},
        "start": "artifacts/models/bert",
        "recipe": RECIPE | {"length": "1 steps", "optimizer": {"name": "sgd", "lr": 1e-12}},
        "evaluate": {},
    }
    write_params(bert=model(), mark=tuned)
    train.main("bert")
    train.main("mark")
    _, pretrained = model_folder.load(layout.model("bert"))
    _, started = model_folder.load(layout.model("mark"))
    theirs = dict(started.encoder.named_parameters())
    for name, parameter in pretrained.encoder.named_parameters():
        torch.testing.assert_close(theirs[name], parameter, rtol=0, atol=1e-6)
    write_params(bert=model(), mark=tuned | {"recipe": RECIPE | {"length": "40 steps"}})
    train.main("mark")
    assert read(layout.metrics("train", "mark"))["valid_accuracy"] == 1.0


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("pairs", ["next_sentence", "sentence_order"])
def test_pairs_are_learned_with_masks(pairs: str) -> None:
    write_params(bert=model({"pairs": pairs, "masking": "word", "share": 0.2, "length": "300 steps"}))
    train.main("bert")
    trained = read(layout.metrics("train", "bert"))
    assert trained["valid_loss"] > trained["valid_masked_loss"]
    assert trained["valid_pair_accuracy"] > 0.6
    _, module = model_folder.load(layout.model("bert"))
    assert module.pair_head is not None
    evaluate.main("bert")


@pytest.mark.usefixtures("workspace")
def test_replaced_tokens_are_found() -> None:
    recipe = {"objective": "replaced", "generator": {"num_hidden_layers": 1, "intermediate_size": 16}}
    # Slower than the other tests: a generator that is always right leaves nothing to find.
    recipe |= {"optimizer": {"name": "adamw", "lr": 0.004}}
    write_params(bert=model(recipe))
    train.main("bert")
    trained = read(layout.metrics("train", "bert"))
    assert trained["valid_replaced_accuracy"] > 1 - trained["valid_replaced_share"]
    _, module = model_folder.load(layout.model("bert"))
    assert module.generator.embedding is module.encoder.embeddings.word_embeddings.weight
    evaluate.main("bert")
    narrow = recipe | {"generator": {"hidden_size": 16}, "length": "2 steps"}
    write_params(bert=model(narrow))
    train.main("bert")
    _, module = model_folder.load(layout.model("bert"))
    assert module.generator.embedding.shape[1] == 16


@pytest.mark.usefixtures("workspace")
def test_what_cannot_be_learned_is_said() -> None:
    from lexmill import params

    write_params(bert=model({"objective": "replaced", "pairs": "sentence_order"}))
    with pytest.raises(UserErrors, match="pairs: the objective replaced has none"):
        params.load()
    write_params(bert=model({"objective": "replaced", "generator": {"hidden_sice": 3}}))
    with pytest.raises(UserErrors, match=r"generator.*hidden_sice: unknown key"):
        params.load()
    write_params(bert=model({"length": "1e6 tokens"}))
    with pytest.raises(UserErrors, match=r"length: 1000000 tokens of a batch of pieces\? give steps or epochs"):
        params.load()
    falling = {"name": "warmup_stable_decay", "decay": "100 tokens"}
    write_params(bert=model({"schedule": falling}))
    with pytest.raises(UserErrors, match=r"schedule.decay: 100 tokens of a batch of pieces\? give steps or epochs"):
        params.load()
    write_params(bert=model({"objective": "replaced", "generator": {"max_position_embeddings": 8}}))
    with pytest.raises(UserError, match="max_tokens is 12, but the network has 8 positions"):
        train.main("bert")
    write_params(bert=model(data={"corpus": "rows", "tokenizer": "words", "max_tokens": 17}))
    with pytest.raises(UserError, match="max_tokens is 17, but the network has 16 positions"):
        train.main("bert")


@pytest.mark.usefixtures("workspace")
def test_a_language_model_learns_masked_tokens_too() -> None:
    """The method hybrid of language models, through the stages: it writes text, and its masked loss falls as well."""
    writer = {
        "kind": "language_model",
        "family": "decoder",
        "shape": {"n_layer": 2, "n_head": 2, "d_model": 32, "context": 12},
        "data": {"corpus": "rows", "train": "rows", "tokenizer": "words"},
        "start": "gpt2.yaml",
        "recipe": RECIPE | {"method": "hybrid", "batch": 384, "masking": "word", "length": "120 steps"},
        "evaluate": {"prompts": ["the king"], "ngrams": {}},
    }
    write_params(writer=writer)
    train.main("writer")
    evaluate.main("writer")
    trained = read(layout.metrics("train", "writer"))
    assert trained["valid_loss"] < 1.0
    assert trained["valid_masked_loss"] < 1.5  # by frequency alone 2.4: ln 6 + (2 ln 4 + ln 3) / 6
    (sample,) = read(layout.samples("writer"))["samples"]
    assert sample["text"]
