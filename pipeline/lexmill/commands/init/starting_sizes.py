"""The first conf/config.yaml for a corpus of one's own: a model and its floor, sizes by the amount of data.

They are a start for an evening on a CPU, to be changed by hand.
"""

from __future__ import annotations

import builtins
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["text", "labelled", "parallel"]


@dataclass
class Counts:
    """What the files hold: records, characters, UTF-8 bytes, and how often each label comes.

    `different` has some of the distinct texts (their hashes), no more than are needed to see that there are enough.
    """

    records: int = 0
    characters: int = 0
    bytes: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    different: set[builtins.bytes] = field(default_factory=set)


_NGRAMS = {"order": 3, "byte_order": 3, "add_k": 0.01, "prompts": [""]}


def _clamp(value: float, low: int, high: int) -> int:
    return int(min(max(value, low), high))


def configuration(kind: Kind, name: str, counts: Counts) -> dict[str, Any]:
    """conf/config.yaml for one corpus, one model and its floor; sizes by the amount of data."""
    parts = {"text": _language_model, "labelled": _classifier, "parallel": _translator}[kind](name, counts)
    config: dict[str, Any] = {
        "defaults": [{f"corpus@corpora.{name}": name}, *parts.pop("defaults"), "_self_"],
        "experiment": name,
        "data_seed": 1337,
        "training_seed": 1337,
    }
    groups = ("tokenizers", "imported_tokenizers", "mixtures", "encodings", "checkpoints")
    for group in (*groups, "language_models", "classifiers", "translators"):
        config[group] = parts.get(group, {})
    config["floors"] = {"language_model": {}, "classifier": {}, "translator": {}} | parts["floors"]
    config["evaluation"] = {"bootstrap_samples": 1000, "confidence": 0.95, "batch_tokens": 16384, "overlap": 0.0}
    config["promotion"] = {"significance": 0.05, "tests_per_year": 365, "fresher_margin": 0.0, "gain": 0.02}
    return config


def _vocabulary(size: int) -> int:
    """Entries of a BPE for so many bytes: a small corpus cannot fill a large one."""
    return 512 if size < 200_000 else 1024 if size < 1_000_000 else 2048 if size < 20_000_000 else 8192


def _language_model(name: str, counts: Counts) -> dict[str, Any]:
    large = counts.bytes >= 20_000_000
    batch_tokens = 8192 if large else 4096
    tokens = counts.bytes / 3  # about three bytes a token
    steps = _clamp(8 * tokens / batch_tokens, 200, 2000 if large else 1000)
    model = f"{name}_gpt"
    tokenizer = f"{name}_bpe"
    return {
        "defaults": [
            {f"tokenizer@tokenizers.{tokenizer}": "bpe_2k"},
            {f"language_model@language_models.{model}": "gpt_small" if large else "gpt_tiny"},
        ],
        "tokenizers": {tokenizer: {"corpus": name, "vocab_size": _vocabulary(counts.bytes)}},
        "encodings": {name: {"corpus": name, "tokenizer": tokenizer}},
        "language_models": {
            model: {
                "corpus": name,
                "train": name,
                "tokenizer": tokenizer,
                "length": f"{steps} steps",
                "batch_tokens": batch_tokens,
                "evaluate_every": max(1, steps // 5),
                "schedule": {"warmup": f"{steps // 12} steps"},
                "prompts": [""],
            }
        },
        "floors": {"language_model": {name: {"corpus": name, "tokenizer": tokenizer, **_NGRAMS}}},
    }


def _classifier(name: str, counts: Counts) -> dict[str, Any]:
    epochs = 4 if counts.records < 5_000 else 2 if counts.records < 50_000 else 1
    mean = counts.characters / counts.records
    return {
        "defaults": [{"checkpoint@checkpoints.minilm": "minilm"}, {f"classifier@classifiers.{name}": "minilm"}],
        "classifiers": {name: {"corpus": name, "epochs": epochs, "max_tokens": 256 if mean > 400 else 128}},
        "floors": {"classifier": {name: {"corpus": name}}},
    }


def _translator(name: str, counts: Counts) -> dict[str, Any]:
    tokens = counts.bytes / 2 / 3  # the target side
    steps = _clamp(8 * tokens / 2048, 400, 6000)
    tokenizer = f"{name}_bpe"
    vocabulary = min(2 * _vocabulary(counts.bytes), 8192)
    return {
        "defaults": [
            {f"tokenizer@tokenizers.{tokenizer}": "joint_bpe_4k"},
            {f"translator@translators.{name}": "transformer_tiny"},
        ],
        "tokenizers": {tokenizer: {"corpus": name, "vocab_size": vocabulary}},
        "encodings": {name: {"corpus": name, "tokenizer": tokenizer}},
        "translators": {
            name: {
                "corpus": name,
                "tokenizer": tokenizer,
                "length": f"{steps} steps",
                "evaluate_every": max(1, steps // 6),
                "schedule": {"warmup": f"{steps // 4} steps"},
            }
        },
        "floors": {"translator": {name: {"corpus": name}}},
    }
