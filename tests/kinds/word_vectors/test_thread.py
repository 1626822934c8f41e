"""Both families through every stage on made sentences: trained, evaluated, beside baselines, packaged, asked."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from lexmill import cli
from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.encoding import encode_corpus
from lexmill.evaluation.rows import read_rows
from lexmill.models import folder as model_folder
from lexmill.registry.loader import load_package
from lexmill.stages import baseline, evaluate, register, train
from lexmill.tokenizers import load, saving
from lexmill.tokenizers.training import train as train_tokenizer
from tests.support.prepared import write_prepared
from tests.support.small_project import whole

NOUNS = {"king": "royal", "lord": "rich", "hand": "warm", "ship": "fast", "tree": "green", "ring": "round"}
SHAPES: dict[str, dict[str, Any]] = {
    "skip_gram": {"d_model": 12, "window": 4, "negatives": 4, "subsample": 1.0},
    "glove": {"d_model": 12, "window": 4, "x_max": 100.0, "alpha": 0.75},
}
FAMILIES = sorted(SHAPES)
BASELINES = "word_vectors-rows-words"


def sentences(count: int, seed: int) -> list[dict[str, str]]:
    """One king is royal, two kings are royal: neighbours tell the form, and the noun. A fifth is words at random.

    Without the latter, no count would be small, and GloVe could fit all of them by its biases alone.
    """
    draw = random.Random(seed)
    every = [*NOUNS, *NOUNS.values(), *(f"{noun}s" for noun in NOUNS), "one", "two", "is", "are"]
    found = []
    for _ in range(count):
        noun, many = draw.choice(list(NOUNS)), draw.random() < 0.5
        said = f"{'two' if many else 'one'} {noun}{'s' if many else ''} {'are' if many else 'is'} {NOUNS[noun]}"
        found.append({"text": said if draw.random() < 0.8 else " ".join(draw.choices(every, k=4))})
    return found


def model(family: str, **shape: Any) -> dict[str, Any]:
    return {
        "kind": "word_vectors",
        "family": family,
        "shape": SHAPES[family] | shape,
        "data": {"corpus": "rows", "tokenizer": "words"},
        "start": "xavier.yaml",
        "recipe": {
            "method": "gradient",
            "optimizer": {"name": "adagrad", "lr": 0.2},
            "schedule": {"name": "linear"},
            "length": "150 steps",
            "batch": 64,
            "clip_norm": 0.0,
            "validate_every": "50 steps",
            "keep": "last",
        },
        "evaluate": {"ppmi": {"window": 4, "dimensions": 8}},
    }


def write_params(**models: Any) -> None:
    reader = {"format": "text", "document": "line"}
    corpus = {"kind": "text", "source": {"kind": "file", "paths": ["rows.txt"]}, "reader": reader}
    params = {
        "experiment": "test",
        "data_seed": 1,
        "training_seed": 2,
        "evaluation": {"bootstrap_samples": 100},
        "corpora": {"rows": corpus},
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
    Path("xavier.yaml").write_text("name: xavier\nembedding_std: 0.1\n", encoding="utf-8")
    Path("sources.lock.yaml").write_text("corpora: {}\ncheckpoints: {}\n", encoding="utf-8")
    write_params(**{family: model(family) for family in FAMILIES})
    return tmp_path


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def contents() -> dict[str, bytes]:
    roots = (Path("metrics"), Path("reports"), Path("artifacts"))
    return {str(path): path.read_bytes() for root in roots for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(("family", "least"), [("skip_gram", 0.6), ("glove", 0.2)])
def test_the_whole_thread(family: str, least: float) -> None:
    encode(train=sentences(400, 0), valid=sentences(40, 1), test=sentences(100, 2))
    for _ in range(2):
        train.main(family)
        evaluate.main(family)
        baseline.main(BASELINES)
        register.main(family)
        first = locals().get("first", contents())
    assert contents() == first, "the same bytes twice"

    trained = read(layout.metrics("train", family))
    assert (trained["steps"], trained["pairs"]) == (150, 150 * 64)
    config, module = model_folder.load(layout.model(family))
    assert (config["kind"], config["family"]) == ("word_vectors", family)
    assert trained["parameters"] == sum(parameter.numel() for parameter in module.parameters())

    measured, baselines = read(layout.metrics("evaluate", family))["test"], read(layout.metrics("baseline", BASELINES))
    rows = read_rows(layout.predictions(family) / "rows.jsonl")
    assert measured["questions"] == len(rows) == len(NOUNS) * (len(NOUNS) - 1)
    assert measured["analogy_accuracy"] == sum(row["rank"] == 1 for row in rows) / len(rows)
    assert measured["analogy_accuracy_low"] <= measured["analogy_accuracy"] <= measured["analogy_accuracy_high"]
    assert {"ppmi_svd", "random"} < set(baselines)
    assert measured["analogy_accuracy"] > least > baselines["random"]["analogy_accuracy"]
    for name in ("ppmi_svd", "random"):
        theirs = read_rows(layout.predictions(f"baseline-{BASELINES}") / f"{name}.jsonl")
        assert [row["id"] for row in theirs] == [row["id"] for row in rows]
    assert sorted(path.name for path in layout.plots(family).iterdir()) == ["curve.png", "words.png"]

    package = load_package(layout.package(family))
    king, words, none = package.predict(["king", "Two KINGS!", "xyzzy 12"], {"count": 3})
    assert len(king) == len(words) == 3
    assert none == []
    assert "king" not in [one["word"] for one in king]
    assert [one["cosine"] for one in king] == sorted((one["cosine"] for one in king), reverse=True)
    assert len(package.predict(["king"])[0]) == 10
    card = (layout.package(family) / "card.md").read_text(encoding="utf-8")
    assert "A word-vector model that gives each word a vector" in card
    assert f"lexmill neighbours --model {family}" in card

    asked = ["neighbours", "kings - king + lord", "--model", family, "--count", "1"]
    done = CliRunner().invoke(cli.app, asked)
    (question,) = [row for row in rows if row["id"] == "plural: king kings lord"]
    assert (done.exit_code, done.stdout.split("\t")[0]) == (0, question["predicted"])


@pytest.mark.usefixtures("workspace")
def test_without_two_known_words_in_a_document_there_is_nothing_to_learn() -> None:
    encode(train=[{"text": "king"}, {"text": "lord"}], valid=[{"text": "king"}], test=[])
    for family in FAMILIES:
        with pytest.raises(UserError, match="no document of the train split has two tokens that its tokenizer knows"):
            train.main(family)
        assert not layout.model(family).exists()


@pytest.mark.usefixtures("workspace")
def test_a_validation_split_without_a_pair_is_named() -> None:
    encode(train=sentences(20, 0), valid=[{"text": "xyzzy king"}], test=[])
    with pytest.raises(UserError, match="no document of the valid split"):
        train.main("glove")


@pytest.mark.usefixtures("workspace")
def test_texts_shorter_than_the_window_are_learned_from() -> None:
    encode(train=sentences(20, 0), valid=sentences(5, 1), test=[])
    write_params(**{family: model(family, window=100) for family in FAMILIES})
    for family in FAMILIES:
        train.main(family)
        assert read(layout.metrics("train", family))["steps"] == 150


@pytest.mark.usefixtures("workspace")
def test_shards_of_another_tokenizer_are_refused() -> None:
    encode(train=sentences(20, 0), valid=sentences(5, 1), test=[])
    backend = train_tokenizer("word", lambda: iter(["some other words"]), vocab_size=100)
    saving.save(backend, layout.tokenizer("words"))
    with pytest.raises(UserError, match="another tokenizer"):
        train.main("glove")


@pytest.mark.usefixtures("workspace")
def test_baselines_of_different_settings_are_refused() -> None:
    from lexmill import params
    from lexmill.base.errors import UserErrors

    other = model("glove") | {"evaluate": {"ppmi": {"window": 2, "dimensions": 8}}}
    write_params(skip_gram=model("skip_gram"), glove=other)
    with pytest.raises(UserErrors, match="evaluate"):
        params.load()
