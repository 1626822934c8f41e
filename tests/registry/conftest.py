"""A workspace with three tiny trained and evaluated models, as the earlier stages would have left it, and a store."""

import random
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from lexmill.base import layout, storage
from lexmill.compute.execution import Execution
from lexmill.evaluation.rows import write_rows
from lexmill.kinds.translator.metrics import statistics
from lexmill.models import build, folder
from lexmill.params import Params, parse
from lexmill.registry import package, trial
from lexmill.registry.publish import Outcome, publish_all
from lexmill.tokenizers.imported import import_tokenizer
from lexmill.tokenizers.kinds import assemble, byte_model
from tests.support.once import made_once
from tests.support.tiny_bert import make_tiny_bert

from .plain import plain_params

Row = dict[str, Any]
VOCABULARY = 261
KINDS: dict[str, str] = {name: model["kind"] for name, model in plain_params()["models"].items()}
ITEMS = 60


@pytest.fixture(autouse=True)
def equal_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test of a decision waits for a clock, or can fail by one; test_trial.py measures for real."""
    monkeypatch.setattr(trial, "times", lambda *_: {"champion": [0.01], "challenger": [0.01]})


@pytest.fixture
def params() -> Params:
    return parse(plain_params())


def byte_tokenizer(target: Path) -> int:
    """Make a tokenizer of bytes; return its size."""
    target.mkdir(parents=True, exist_ok=True)
    assemble("byte", byte_model(), lowercase=False).save(str(target / "tokenizer.json"))
    return VOCABULARY


def letters_tokenizer(target: Path) -> int:
    """Make a BERT's tokenizer of single letters; return its size."""
    words = [*"abcdefghijklmnopqrstuvwxyz", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
    target.mkdir(parents=True, exist_ok=True)
    make_tiny_bert(target.parent / "bert", words)
    size = import_tokenizer(target.parent / "bert", target).vocab_size
    shutil.rmtree(target.parent / "bert")
    return size


def _save(root: Path, name: str, config: dict[str, Any], seed: int) -> None:
    target = root / layout.model(name)
    if config["kind"] == "classifier":
        config["vocab_size"] = letters_tokenizer(target / "tokenizer")
    else:
        config["vocab_size"] = byte_tokenizer(target / "tokenizer")
        config["tokenizer_fingerprint"] = storage.sha256_file(target / "tokenizer" / "tokenizer.json")
    torch.manual_seed(seed)
    folder.save(target, config, build(config))


def _config(params: Params, name: str) -> dict[str, Any]:
    model = params.models[name]
    config = {"kind": model.kind, "family": model.family, "shape": asdict(model.shape), "corpus": model.data.corpus}
    head = {"labels": ["billing", "other"], "max_tokens": 16, "dropout": 0.1} if name == "tickets" else {}
    return config | head


def rows_of(name: str, quality: float, seed: int = 0) -> list[Row]:
    """Test rows of a model; `quality` from 0 to 1 says how good it is, the items are always the same."""
    draw = random.Random(f"{name} {seed}")
    found: list[Row] = []
    for i in range(ITEMS):
        row: Row = {"id": f"{name}-{i}", "group": f"group-{i // 2}"}
        good = draw.random() < quality
        if name == "gpt":
            nats = 100 * (1.2 - quality) + draw.random()
            row |= {"nats": nats, "targets": 50, "bytes": 50, "words": 10, "unknown": 0, "text_sha256": f"hash {i}"}
        elif name == "tickets":
            label = ("billing", "other")[i % 2]
            predicted = label if good else ("other", "billing")[i % 2]
            chances = {"billing": 0.9 if predicted == "billing" else 0.1}
            row |= {
                "label": label,
                "predicted": predicted,
                "probabilities": {**chances, "other": 1 - chances["billing"]},
            }
        else:
            reference = f"the {i} quick brown foxes jump over the lazy dog"
            hypothesis = reference if good else "something else entirely"
            row |= {"source": f"source {i}", "reference": reference, "hypothesis": hypothesis}
            for metric in ("bleu", "chrf", "ter"):
                row[f"{metric}_stats"] = statistics(metric, [hypothesis], [reference])[0]
        found.append(row)
    return found


_TESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": ("plays", {"bits_per_byte": 2.5, "bits_per_byte_low": 2.4, "bits_per_byte_high": 2.6}),
    "tickets": ("mail", {"accuracy": 0.8, "macro_f1": 0.79, "billing as other": 3}),
    "en_de": ("pairs", {"bleu": 20.5, "chrf": 45.0, "bleu_signature": "nrefs:1|case:mixed"}),
}
_BASELINES = {
    "gpt": {"unigram": {"bits_per_byte": 4.7}, "byte_trigram": {"bits_per_byte": 2.9}},
    "tickets": {"majority": {"accuracy": 0.5, "macro_f1": 0.33}},
    "en_de": {"copy": {"bleu": 3.1, "chrf": 20.0}},
}
_SAMPLES = {
    "gpt": [{"prompt": "ROMEO", "text": " and Juliet"}],
    "tickets": [{"text": "my bill", "label": "billing", "predicted": "billing", "score": 0.9}],
    "en_de": [{"source": "Good day", "reference": "Guten Tag", "hypothesis": "Guten Tag"}],
}


def make(params: Params, root: Path, name: str, quality: float = 0.5, seed: int = 0) -> None:
    """Everything that the stages before `register` write for a model."""
    corpus, metrics = _TESTS[name]
    _save(root, name, _config(params, name), seed)
    write_rows(root / layout.predictions(name) / "rows.jsonl", rows_of(name, quality, seed))
    storage.write_json(root / layout.metrics("evaluate", name), {"test": metrics})
    storage.write_json(root / layout.metrics("train", name), {"train_loss": 1.5, "steps": 10})
    for baseline in params.baselines_of(params.models[name]):
        storage.write_json(root / layout.metrics("baseline", baseline), _BASELINES[name])
    split = {"records": 60, "groups": 30, "characters": 600, "bytes": 600, "words": 90}
    shards = [{"path": "test-00000.jsonl", "records": 60, "bytes": 9, "sha256": "0" * 64}]
    splits = {s: {**split, "shards": shards} for s in ("train", "valid", "test")}
    manifest = {"kind": "text", "unit": "group", "languages": ["en"], "splits": splits}
    storage.write_json(root / layout.corpus(corpus) / "manifest.json", manifest)
    storage.write_json(root / layout.samples(name), {"samples": _SAMPLES[name]})
    lines = ["step,tokens,epoch,train_loss,valid_loss,lr,grad_norm"]
    lines += [f"{i},{i * 64},0.{i},{5 / (i + 1)},{'' if i % 5 else 4.0},0.001,1.0" for i in range(10)]
    storage.write_text(root / layout.curve(name), "\n".join(lines) + "\n")
    storage.write_bytes(root / layout.plots(name) / "figure.png", b"\x89PNG\r\n\x1a\n")


@pytest.fixture
def root(tmp_path: Path, empty_store: Path) -> Path:
    """A workspace with an empty MLflow store, in a folder with a space in its name."""
    where = tmp_path / "the workspace"
    where.mkdir()
    for path in empty_store.iterdir():
        shutil.copy(path, where / path.name)
    return where


@pytest.fixture
def execution() -> Execution:
    return Execution(tracking_uri="sqlite:///mlflow.db")


def publish_model(params: Params, root: Path, name: str, quality: float, seed: int) -> list[Outcome]:
    """Make a model, package it, publish all packages."""
    make(params, root, name, quality, seed)
    package.write(params, name, root)
    return publish_all(params, Execution(tracking_uri="sqlite:///mlflow.db"), lambda _: None, root)


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> tuple[Path, list[str]]:
    """A workspace whose three models are published, not to be changed; and what was said."""

    def publish(folder: Path) -> None:
        where = folder / "the workspace"
        shutil.copytree(empty_store, where)
        params, said = parse(plain_params()), list[str]()
        for name in params.models:
            make(params, where, name)
            package.write(params, name, where)
        publish_all(params, Execution(tracking_uri="sqlite:///mlflow.db"), said.append, where)
        storage.write_json(folder / "said.json", said)

    folder = made_once(tmp_path_factory, "published", publish)
    return folder / "the workspace", storage.read_json(folder / "said.json")
