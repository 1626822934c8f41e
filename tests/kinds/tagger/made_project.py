"""A project with entities of a made language in CoNLL files, and its params.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.support.small_project import whole
from tests.support.tiny_bert import SIZES as BERT

NAMES = ["anna", "bert", "cora", "dirk"]
PLACES = ["ulm", "bonn", "kiel"]
FILLER = ["saw", "went", "to", "the", "mill", "and", "slept", "in"]
BIRNN = {"cell": "lstm", "n_layer": 1, "d_embedding": 16, "d_state": 12, "max_positions": 40}


def sentence(generator: np.random.Generator) -> list[tuple[str, str]]:
    """Names of one word or two, places after `in`; the same words outside of places where `to` precedes them."""
    found = [(str(word), "O") for word in generator.choice(FILLER[:-1], generator.integers(1, 4))]
    first = str(generator.choice(NAMES))
    found.append((first, "B-person"))
    if generator.random() < 0.5:
        found.append((str(generator.choice(NAMES)), "I-person"))
    found += [("went", "O")]
    found += [("in", "O"), (str(generator.choice(PLACES)), "B-place")] if generator.random() < 0.7 else [("to", "O")]
    return found


def conll(count: int, seed: int) -> str:
    generator = np.random.default_rng(seed)
    sentences = [sentence(generator) for _ in range(count)]
    return "".join("".join(f"{word}\t{tag}\n" for word, tag in one) + "\n" for one in sentences)


def write_params(head: str, family: str, **changes: Any) -> None:
    bert = family == "bert"
    model = {
        "kind": "tagger",
        "family": family,
        "shape": BERT if bert else BIRNN,
        "data": {"corpus": "names", "tokenizer": "tiny" if bert else "words", "max_tokens": 16}
        | changes.pop("data", {}),
        "start": "artifacts/checkpoints/tiny" if bert else "xavier.yaml",
        "recipe": {
            "method": "gradient",
            "optimizer": {"name": "adamw", "lr": 0.005 if bert else 0.02},
            "schedule": {"name": "linear", "warmup": "10 %"},
            "length": "10 epochs" if bert else "5 epochs",
            "batch": 8,
            "validate_every": "1 epochs",
            "patience": 10,
            "head": head,
        }
        | changes,
        "evaluate": {},
    }
    corpus = {
        "kind": "tagged",
        "unit": "sentence",
        "source": {"kind": "file", "paths": ["train.conll", "dev.conll", "test.conll", "hard.conll"]},
        "reader": {"format": "conll", "scheme": "iob2"},
        "deduplicate": {"exact": False},
        "splits": {
            "files": {"valid": ["dev.conll"], "test": ["test.conll"], "test_hard": ["hard.conll"]},
            "keep_together": False,
        },
    }
    params = {
        "experiment": "test",
        "data_seed": 1,
        "training_seed": 1,
        "corpora": {"names": corpus},
        "tokenizers": {"words": {"corpus": "names", "kind": "word", "vocab_size": 40, "min_frequency": 1}},
        "checkpoints": {"tiny": {"source": {"kind": "file", "paths": ["x"]}}},
        "models": {"ner": model},
        "evaluation": {"bootstrap_samples": 100},
    }
    Path("params.yaml").write_text(yaml.safe_dump(whole(params)), encoding="utf-8")


DECODER = {"n_layer": 1, "n_head": 2, "d_model": 16, "d_ffn": 24, "context": 16}


def write_decoder(start: str = "xavier.yaml", **shape: Any) -> None:
    """The params.yaml of a tagger on a causal network read in both directions."""
    write_params("softmax", "birnn")
    params = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    params["models"]["ner"] |= {"family": "decoder", "shape": DECODER | shape, "start": start}
    Path("params.yaml").write_text(yaml.safe_dump(whole(params)), encoding="utf-8")


def write_words(method: str, family: str = "word_features", **changes: Any) -> None:
    """The params.yaml of a tagger of whole words."""
    write_params("crf", "birnn")
    params = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    model = params["models"]["ner"]
    model |= {"family": family, "shape": changes.get("shape", {"n_feature": 100_000})}
    model["data"] = {"corpus": "names", "tokenizer": "words"} | changes.get("data", {})
    if method != "gradient":
        model["recipe"] = {"method": method}
    Path("params.yaml").write_text(yaml.safe_dump(whole(params)), encoding="utf-8")
