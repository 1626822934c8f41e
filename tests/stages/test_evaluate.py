"""The stages `evaluate` and `baseline` of every kind on a workspace of a few texts."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from sacrebleu.metrics.bleu import BLEU

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_file
from lexmill.corpora.identity import split_sha256
from lexmill.decoding.settings import BeamSearch, Sampling
from lexmill.evaluation.rows import read_rows, spread
from lexmill.kinds.translator.minimum_risk import expected_chrf
from lexmill.kinds.translator.predict import translate
from lexmill.kinds.translator.robustness import upper_case, with_typos
from lexmill.models import build
from lexmill.models import folder as model_folder
from lexmill.stages import baseline, evaluate
from lexmill.tokenizers import SPECIAL_TOKENS
from tests.support.prepared import write_prepared
from tests.support.small_project import whole

VERSE = "Shall I compare thee to a summer's day?\nThou art more lovely and more temperate.\n"
CURVE = "step,tokens,epoch,train_loss,valid_loss,lr,grad_norm\n1,10,0.1,3.0,3.1,0.1,1.0\n"
PAIRS = [
    {"source": "Turn on the light", "target": "Schalte das Licht ein"},
    {"source": "", "target": ""},
    {"source": "Home", "target": "Zuhause"},
]
CORPUS = {"source": {"kind": "file", "paths": ["x"]}, "reader": {"format": "jsonl"}}
RECIPE = {
    "method": "gradient",
    "optimizer": {"name": "adamw", "lr": 0.001},
    "schedule": {"name": "cosine"},
    "length": "2 steps",
    "batch": 64,
}
GPT = {"n_layer": 1, "n_head": 2, "d_model": 16, "context": 16}
BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
}
VERSES, REVIEWS, PHRASES = "language_model-verse-bytes", "classifier-reviews", "translator-phrases"  # baselines
TRANSFORMER = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "n_head": 2,
    "d_model": 16,
    "d_ffn": 16,
    "max_positions": 32,
}


def params(**evaluation: Any) -> dict[str, Any]:
    reader = {"format": "jsonl", "text": "text", "label": "label", "source": "source", "target": "target"}
    corpora = {
        "verse": {"kind": "text", "reader": {"format": "text"}},
        "reviews": {"kind": "labelled", "reader": reader},
        "phrases": {"kind": "parallel", "reader": reader, "languages": ["en", "de"]},
    }
    data = {
        "experiment": "test",
        "data_seed": 1,
        "training_seed": 1,
        "corpora": {name: {**CORPUS, **corpus} for name, corpus in corpora.items()},
        "tokenizers": {"bytes": {"corpus": "verse", "kind": "byte"}},
        "checkpoints": {"tiny": {"source": {"kind": "file", "paths": ["x"]}}},
        "models": {
            "gpt": {
                "kind": "language_model",
                "family": "gpt",
                "shape": GPT,
                "data": {"corpus": "verse", "train": "verse", "tokenizer": "bytes"},
                "start": "conf/initialization/gpt2.yaml",
                "recipe": RECIPE,
                "evaluate": {"prompts": ["Shall", ""]},
            },
            "cl": {
                "kind": "classifier",
                "family": "bert",
                "shape": BERT,
                "data": {"corpus": "reviews", "tokenizer": "tiny", "max_tokens": 12},
                "start": "artifacts/checkpoints/tiny",
                "recipe": RECIPE,
                "evaluate": {},
            },
            "tr": {
                "kind": "translator",
                "family": "transformer",
                "shape": TRANSFORMER,
                "data": {"corpus": "phrases", "tokenizer": "bytes"},
                "start": "conf/initialization/transformer.yaml",
                "recipe": RECIPE,
                "evaluate": {"beam": {"beam_size": 2}},
            },
        },
        "evaluation": {"bootstrap_samples": 100, **evaluation},
    }
    return whole(data)


def make_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: i for i, token in enumerate([*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    folder.mkdir(parents=True)
    backend.save(str(folder / "tokenizer.json"))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n", encoding="utf-8")
    Path("params.yaml").write_text(yaml.safe_dump(params()), encoding="utf-8")
    texts = {split: [{"text": VERSE * n}] for split, n in (("train", 20), ("valid", 1))}
    texts["test"] = [{"text": VERSE * 150, "group": "sonnet"}, {"text": VERSE, "group": "other"}]
    write_prepared(layout.corpus("verse"), "text", texts)
    reviews = [
        {"text": f"{word} film {i}", "label": label} for i in range(5) for word, label in (("fine", "p"), ("dull", "n"))
    ]
    write_prepared(layout.corpus("reviews"), "labelled", {split: reviews for split in ("train", "valid", "test")})
    write_prepared(layout.corpus("phrases"), "parallel", {"train": PAIRS, "valid": PAIRS, "test": PAIRS}, ("en", "de"))
    make_tokenizer(layout.tokenizer("bytes"))
    return tmp_path


def make_model(name: str, config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = {**config, "vocab_size": 261, "tokenizer_fingerprint": "f", "corpus": "c"}
    model_folder.save(layout.model(name), config, build(config))
    make_tokenizer(layout.model(name) / model_folder.TOKENIZER)
    layout.curve(name).parent.mkdir(parents=True, exist_ok=True)
    layout.curve(name).write_text(CURVE, encoding="utf-8")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def contents() -> dict[str, bytes]:
    roots = (Path("metrics"), Path("reports"), Path("artifacts/predictions"))
    return {str(path): path.read_bytes() for root in roots for path in sorted(root.rglob("*")) if path.is_file()}


def same_bytes_twice(stage: Callable[[str], None], name: str) -> None:
    stage(name)
    first = contents()
    stage(name)
    assert contents() == first


@pytest.mark.usefixtures("workspace")
def test_baselines_of_language_models() -> None:
    same_bytes_twice(baseline.main, VERSES)
    found = read(layout.metrics("baseline", VERSES))
    assert found.pop("measured_on") == {
        "test": split_sha256(read(layout.corpus("verse") / "manifest.json"), "test"),
        "tokenizer": sha256_file(layout.tokenizer("bytes") / "tokenizer.json"),
    }
    assert set(found) == {"unigram", "byte_trigram", "token_trigram", "add_k_trigram", "backoff_trigram"}
    assert found["token_trigram"]["bits_per_byte"] < found["add_k_trigram"]["bits_per_byte"]
    samples = read(layout.samples(f"baseline-{VERSES}"))["samples"]
    assert [sample["prompt"] for sample in samples] == ["Shall", ""], "the models' prompts"
    assert all(set(sample["text"].split()) & set(VERSE.split()) for sample in samples)
    assert found["byte_trigram"]["bits_per_byte"] < 1 < found["unigram"]["bits_per_byte"]
    for kind, metrics in found.items():
        rows = read_rows(layout.predictions(f"baseline-{VERSES}") / f"{kind}.jsonl")
        nats, size = sum(row["nats"] for row in rows), sum(row["bytes"] for row in rows)
        assert metrics["bits_per_byte"] == pytest.approx(nats / math.log(2) / size)
        assert size == 151 * len(VERSE)
    # The tokens are bytes, so the two trigrams are one model over other numbers of ids.
    assert found["token_trigram"]["bits_per_byte"] == pytest.approx(found["byte_trigram"]["bits_per_byte"], rel=0.01)


@pytest.mark.usefixtures("workspace")
def test_baselines_of_classifiers_and_translators() -> None:
    same_bytes_twice(baseline.main, REVIEWS)
    found = read(layout.metrics("baseline", REVIEWS))
    assert found["majority"]["accuracy"] == 0.5
    assert found["tfidf_logistic_regression"]["accuracy"] == 1.0
    same_bytes_twice(baseline.main, PHRASES)
    found = read(layout.metrics("baseline", PHRASES))["copy_source"]
    assert found["items"] == len(PAIRS)
    assert "tok:13a" in found["bleu_signature"]


@pytest.mark.usefixtures("workspace")
def test_a_language_model() -> None:
    make_model("gpt", {"kind": "language_model", "family": "gpt", "shape": GPT})
    same_bytes_twice(evaluate.main, "gpt")
    measured = read(layout.metrics("evaluate", "gpt"))
    metrics = measured["test"]
    baseline.main(VERSES)
    assert measured["measured_on"] == read(layout.metrics("baseline", VERSES))["measured_on"]
    assert metrics["word_perplexity_low"] < metrics["word_perplexity"] < metrics["word_perplexity_high"]
    rows = read_rows(layout.predictions("gpt") / "rows.jsonl")
    assert metrics["targets"] == 151 * len(VERSE) + 2 == sum(row["targets"] for row in rows)
    assert metrics["perplexity"] == pytest.approx(math.exp(sum(row["nats"] for row in rows) / metrics["targets"]))
    assert metrics["perplexity"] == pytest.approx(261, rel=0.1)
    assert len(rows) == 3
    samples = read(layout.samples("gpt"))["samples"]
    assert [sample["prompt"] for sample in samples] == ["Shall", ""]
    pictures = layout.plots("gpt")
    assert sorted(path.name for path in pictures.iterdir()) == [
        "curve.png",
        "gradient_reach.png",
        "loss_by_position.png",
        "words.png",
    ]

    Path("params.yaml").write_text(yaml.safe_dump(params(batch_tokens=300)), encoding="utf-8")
    evaluate.main("gpt")
    again = read(layout.metrics("evaluate", "gpt"))["test"]
    assert again["nats_per_token"] == pytest.approx(metrics["nats_per_token"], rel=1e-6), "for any batch size"

    Path("params.yaml").write_text(yaml.safe_dump(params(overlap=0.5)), encoding="utf-8")
    evaluate.main("gpt")
    sliding = read(layout.metrics("evaluate", "gpt"))["test"]
    assert sliding["targets"] == metrics["targets"], "each target once"
    assert sliding["nats_per_token"] != pytest.approx(metrics["nats_per_token"], rel=1e-6), "seen with more context"


@pytest.mark.usefixtures("workspace")
def test_the_rows_of_a_model_and_its_baselines_are_the_same_items() -> None:
    make_model("gpt", {"kind": "language_model", "family": "gpt", "shape": GPT})
    evaluate.main("gpt")
    baseline.main(VERSES)
    same = ("id", "group", "bytes", "text_sha256")
    mine, theirs = (
        [[row[key] for key in same] for row in read_rows(layout.predictions(place))]
        for place in ("gpt/rows.jsonl", f"baseline-{VERSES}/byte_trigram.jsonl")
    )
    assert mine == theirs


@pytest.mark.usefixtures("workspace")
def test_each_test_set_has_a_fingerprint_of_its_own() -> None:
    manifest = layout.corpus("verse") / "manifest.json"
    changed = read(manifest)
    changed["splits"]["prose"] = changed["splits"]["valid"]
    manifest.write_text(json.dumps(changed), encoding="utf-8")
    make_model("gpt", {"kind": "language_model", "family": "gpt", "shape": GPT})
    evaluate.main("gpt")
    found = read(layout.metrics("evaluate", "gpt"))["measured_on"]
    assert found["tests"] == {"prose": split_sha256(changed, "prose")}
    assert found["test"] == split_sha256(changed, "test") != found["tests"]["prose"]
    assert found["tokenizer"] == sha256_file(layout.model("gpt") / model_folder.TOKENIZER / "tokenizer.json")


@pytest.mark.usefixtures("workspace")
def test_a_translator() -> None:
    config = {"kind": "translator", "family": "transformer", "shape": {**TRANSFORMER, "dropout": 0.1, "norm": "pre"}}
    make_model("tr", config)
    same_bytes_twice(evaluate.main, "tr")
    found = read(layout.metrics("evaluate", "tr"))
    baseline.main(PHRASES)
    assert found["measured_on"].keys() == {"test"}, "none of its metrics is over tokens"
    assert found["measured_on"] == read(layout.metrics("baseline", PHRASES))["measured_on"]
    metrics = found["test"]
    rows = read_rows(layout.predictions("tr") / "rows.jsonl")
    assert [row["source"] for row in rows] == [pair["source"] for pair in PAIRS]
    assert [row["reference"] for row in rows] == [pair["target"] for pair in PAIRS]
    assert rows[1]["hypothesis"] == "", "an empty line stays empty"
    assert metrics["items"] == len(PAIRS)
    assert len(read(layout.samples("tr"))["samples"]) == len(PAIRS)
    assert all((layout.plots("tr") / name).is_file() for name in ("curve.png", "words.png"))


@pytest.mark.usefixtures("workspace")
def test_a_translator_reads_sources_that_are_written_otherwise() -> None:
    chosen = params()
    chosen["models"]["tr"]["evaluate"]["robustness"] = {"sentences": 2, "seed": 3}
    Path("params.yaml").write_text(yaml.safe_dump(chosen), encoding="utf-8")
    config = {"kind": "translator", "family": "transformer", "shape": {**TRANSFORMER, "dropout": 0.1, "norm": "pre"}}
    make_model("tr", config)
    evaluate.main("tr")
    metrics = read(layout.metrics("evaluate", "tr"))["test"]
    _, module = model_folder.load(layout.model("tr"))
    tokenizer = tokenizers.load(layout.model("tr") / model_folder.TOKENIZER)
    some = [PAIRS[i] for i in spread(len(PAIRS), 2)]
    changes = {"unchanged": str, "upper_case": upper_case, "typos": lambda text: with_typos(text, 3)}
    for name, change in changes.items():
        found = translate(module, tokenizer, [change(pair["source"]) for pair in some], BeamSearch(2), 100)
        score = BLEU(force=True).corpus_score([own[0].text for own in found], [[pair["target"] for pair in some]])
        assert metrics[f"bleu_{name}"] == pytest.approx(score.score)
    assert "bleu_without_end" in metrics


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("forced", [False, True])
def test_a_translator_keeps_to_terms_where_it_must(forced: bool) -> None:
    chosen = params()
    chosen["models"]["tr"]["evaluate"]["terms"] = {"lexicon": {"light": "Licht", "Door": "Haus"}, "forced": forced}
    Path("params.yaml").write_text(yaml.safe_dump(chosen), encoding="utf-8")
    config = {"kind": "translator", "family": "transformer", "shape": {**TRANSFORMER, "dropout": 0.1, "norm": "pre"}}
    make_model("tr", config)
    evaluate.main("tr")
    metrics = read(layout.metrics("evaluate", "tr"))["test"]
    assert (metrics["with_terms"], metrics["kept_terms"]) == (1, float(forced))  # random weights write no such word
    first = next(row for row in read_rows(layout.predictions("tr") / "rows.jsonl") if "light" in row["source"])
    assert ("Licht" in first["hypothesis"]) == forced


@pytest.mark.usefixtures("workspace")
def test_a_translator_by_minimum_risk() -> None:
    chosen = params()
    chosen["models"]["tr"]["evaluate"]["mbr"] = {"candidates": 5, "temperature": 1.5, "seed": 3}
    Path("params.yaml").write_text(yaml.safe_dump(chosen), encoding="utf-8")
    config = {"kind": "translator", "family": "transformer", "shape": {**TRANSFORMER, "dropout": 0.1, "norm": "pre"}}
    make_model("tr", config)
    evaluate.main("tr")
    rows = read_rows(layout.predictions("tr") / "rows.jsonl")
    _, module = model_folder.load(layout.model("tr"))
    tokenizer = tokenizers.load(layout.model("tr") / model_folder.TOKENIZER)
    lines = [pair["source"] for pair in PAIRS]
    sampling = Sampling(temperature=1.5, seed=3)
    drawn = translate(module, tokenizer, lines, BeamSearch(2), 100, n_best=5, sampling=sampling)
    assert len({one.text for one in drawn[0]}) > 1
    best = [next(iter(expected_chrf([one.text for one in own]))) for own in drawn]
    assert [row["hypothesis"] for row in rows] == best


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("stage", "name", "message"),
    [
        (evaluate, "gtp", r"models\.gtp is not in params\.yaml, did you mean 'gpt'"),
        (evaluate, "x", r"models\.x is not in params\.yaml; known: cl, gpt, tr"),
        (baseline, "language_model-verse-byte", f"did you mean '{VERSES}'"),
        (baseline, "classifier-review", f"did you mean '{REVIEWS}'"),
        (baseline, "translator-phrase", f"did you mean '{PHRASES}'"),
        (evaluate, "gpt", "there is no model here"),
    ],
)
def test_what_is_missing_is_named(stage: Any, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        stage.main(name)


@pytest.mark.usefixtures("workspace")
def test_an_empty_test_split_is_no_result() -> None:
    for corpus, name in (("verse", VERSES), ("reviews", REVIEWS), ("phrases", PHRASES)):
        manifest = layout.corpus(corpus) / "manifest.json"
        changed = read(manifest)
        changed["splits"]["test"] = {"records": 0, "shards": []}
        manifest.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(UserError, match="test split is empty"):
            baseline.main(name)
        assert not layout.predictions(f"baseline-{name}").exists()
