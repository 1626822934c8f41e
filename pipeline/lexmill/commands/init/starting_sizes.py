"""The first conf/config.yaml for a user's corpus: one model, sized by the amount of data.

The sizes suit an evening on a CPU and are meant to be changed by hand.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lexmill.commands.init.reading import Kind
from lexmill.params.derived import PARTS


@dataclass
class Counts:
    """The numbers of records, characters, UTF-8 bytes and of each label or tag in the files of train.

    `subwords` counts the sides of pairs with a subword that ends in @@, as in tokenised files.
    `given` counts the records of valid and the test sets that the data's owners made.
    `different` holds hashes of distinct texts, and `groups` groups with their labels, no more than needed to know that
    there are enough.
    """

    records: int = 0
    characters: int = 0
    bytes: int = 0
    subwords: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    different: set[builtins.bytes] = field(default_factory=set)
    groups: dict[str, set[str]] = field(default_factory=dict)
    given: Counter[str] = field(default_factory=Counter)

    @property
    def tokenized(self) -> bool:
        """Whether the pairs seem to be tokenised already and cut into subwords."""
        return self.subwords > self.records / 50


def _clamp(value: float, low: int, high: int) -> int:
    return int(min(max(value, low), high))


def configuration(kind: Kind, name: str, counts: Counts, labels: str = "name") -> dict[str, Any]:
    """Return conf/config.yaml for one corpus and one model, sized by the amount of data; `labels`: what a label is."""
    parts = FORMS[kind, labels].model(name, counts)
    return {
        "defaults": [{f"corpus@corpora.{name}": name}, *parts["defaults"], "_self_"],
        "experiment": name,
        "data_seed": 1337,
        "training_seed": 1337,
        "tokenizers": parts.get("tokenizers", {}),
        "checkpoints": {},
        "mixtures": {},
        "translations": {},
        "models": parts["models"],
        "evaluation": {"bootstrap_samples": 1000, "confidence": 0.95, "batch_tokens": 16384, "overlap": 0.0},
        "promotion": {"significance": 0.05, "tests_per_year": 365, "fresher_margin": 0.0, "gain": 0.02},
        **{part: f"${{derived:{part}}}" for part in PARTS},
    }


def _vocabulary(size: int) -> int:
    """Return the vocabulary of a BPE for so many bytes: a small corpus cannot fill a large one."""
    return 512 if size < 200_000 else 1024 if size < 1_000_000 else 2048 if size < 20_000_000 else 8192


def _text(name: str, counts: Counts) -> dict[str, Any]:
    large = counts.bytes >= 20_000_000
    batch = 8192 if large else 4096
    tokens = counts.bytes / 3  # about three bytes a token
    steps = _clamp(8 * tokens / batch, 200, 2000 if large else 1000)
    model, tokenizer = f"{name}_gpt", f"{name}_bpe"
    return {
        "defaults": [
            {f"tokenizer@tokenizers.{tokenizer}": "bpe_2k"},
            {f"model@models.{model}": "gpt_small" if large else "gpt_tiny"},
        ],
        "tokenizers": {tokenizer: {"corpus": name, "vocab_size": _vocabulary(counts.bytes)}},
        "models": {
            model: {
                "data": {"corpus": name, "train": name, "tokenizer": tokenizer},
                "recipe": {"batch": batch, **_lengths(steps, 5, 12)},
                "evaluate": {"prompts": [""]},
            }
        },
    }


def _lengths(steps: int, validations: int, warmups: int) -> dict[str, Any]:
    """Return a length in steps with so many validations and 1/`warmups` of it as warm-up."""
    return {
        "length": f"{steps} steps",
        "validate_every": f"{max(1, steps // validations)} steps",
        "schedule": {"warmup": f"{steps // warmups} steps"},
    }


def _labelled(preset: str, name: str, counts: Counts) -> dict[str, Any]:
    epochs = 4 if counts.records < 5_000 else 2 if counts.records < 50_000 else 1
    mean = counts.characters / counts.records
    return {
        "defaults": [{f"model@models.{name}": preset}],
        "models": {
            name: {
                "data": {"corpus": name, "max_tokens": 256 if mean > 400 else 128},
                "recipe": {"length": f"{epochs} epochs"},
            }
        },
    }


def _questions(name: str, counts: Counts) -> dict[str, Any]:
    epochs = 4 if counts.records < 5_000 else 2
    return {
        "defaults": [{f"model@models.{name}": "answerer_minilm"}],
        "models": {name: {"data": {"corpus": name}, "recipe": {"length": f"{epochs} epochs"}}},
    }


def _tagged(name: str, counts: Counts) -> dict[str, Any]:
    epochs = 5 if counts.records < 5_000 else 3 if counts.records < 20_000 else 1
    return {
        "defaults": [{f"model@models.{name}": "tagger_minilm"}],
        "models": {name: {"data": {"corpus": name}, "recipe": {"length": f"{epochs} epochs"}}},
    }


def _parallel(name: str, counts: Counts) -> dict[str, Any]:
    tokens = counts.bytes / 2 / 3  # the target side
    steps = _clamp(8 * tokens / 2048, 400, 6000)
    tokenizer, preset = f"{name}_bpe", "joint_bpe_4k"
    trained: dict[str, Any] = {"corpus": name, "vocab_size": min(2 * _vocabulary(counts.bytes), 8192)}
    if counts.tokenized:
        tokenizer, preset, trained = f"{name}_tokens", "joint_blanks", {"corpus": name}
    return {
        "defaults": [{f"tokenizer@tokenizers.{tokenizer}": preset}, {f"model@models.{name}": "transformer_tiny"}],
        "tokenizers": {tokenizer: trained},
        "models": {name: {"data": {"corpus": name, "tokenizer": tokenizer}, "recipe": _lengths(steps, 6, 4)}},
    }


@dataclass(frozen=True)
class Form:
    """What `lexmill init` sets up.

    Attributes:
        command: the name of the command.
        model: gives a model's parts of conf/config.yaml, from its name and the counts.
    """

    command: str
    model: Callable[[str, Counts], dict[str, Any]]


FORMS: Mapping[tuple[Kind, str], Form] = {
    ("text", "name"): Form("lm", _text),
    ("labelled", "name"): Form("classify", partial(_labelled, "minilm")),
    ("labelled", "number"): Form("rate", partial(_labelled, "minilm_rating")),
    ("labelled", "set"): Form("label", partial(_labelled, "minilm_labels")),
    ("tagged", "name"): Form("tag", _tagged),
    ("parallel", "name"): Form("translate", _parallel),
    ("questions", "name"): Form("answer", _questions),
}
"""By the kind of corpus and what its labels are (`params.readers.LabelForm`)."""
