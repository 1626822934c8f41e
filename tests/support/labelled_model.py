"""Models of labelled texts around a tiny BERT: params.yaml, a workspace, texts whose label hangs on one word."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lexmill import kinds
from lexmill.base import layout
from lexmill.stages import import_tokenizer
from tests.support.small_project import whole
from tests.support.tiny_bert import SIZES as SHAPE
from tests.support.tiny_bert import make_tiny_bert

FILLER = ["film", "plot", "actor", "scene", "music", "long", "short", "the", "a", "and"]
MARKS = {"fine": "positive", "dull": "negative", "so": "so-so"}
FINE_TUNING: dict[str, Any] = {
    "method": "gradient",
    "optimizer": {"name": "adamw", "lr": 0.005},
    "schedule": {"name": "linear", "warmup": "10 %"},
    "length": "8 epochs",
    "batch": 8,
    "validate_every": "1 epochs",
    "patience": 10,
}
FILE = {"kind": "file", "paths": ["x"]}


def records(count: int, seed: int) -> list[dict[str, str]]:
    """Texts of unequal length whose label hangs on one word."""
    generator = np.random.default_rng(seed)
    made = []
    for i in range(count):
        mark = list(MARKS)[i % 3]
        words = [*generator.choice(FILLER, generator.integers(1, 9)), mark]
        generator.shuffle(words)
        made.append({"text": " ".join(words), "label": MARKS[mark]})
    return made


def entry(kind: str, corpus: str, recipe: Mapping[str, Any], encoder: str = "tiny", **data: Any) -> dict[str, Any]:
    """An entry of `models`: a network of SHAPE from the checkpoint `encoder`."""
    return {
        "kind": kind,
        "family": "bert",
        "shape": SHAPE,
        "data": {"corpus": corpus, "tokenizer": encoder, "max_tokens": 20} | data,
        "start": f"artifacts/checkpoints/{encoder}",
        "recipe": dict(recipe),
        "evaluate": {},
    }


def params_of(
    models: Mapping[str, Mapping[str, Any]], reader: Mapping[str, Any] | None = None, **corpus: Any
) -> dict[str, Any]:
    """params.yaml of these models; their labels are what the kind needs.

    Args:
        models: by name.
        reader, corpus: further keys of each corpus.
    """
    plain = {"format": "jsonl", "text": "text", "label": "label"}
    corpora = {}
    for model in models.values():
        form = {"label_form": {"kind": kinds.find(model["kind"]).label_form or "name"}}
        corpora[model["data"]["corpus"]] = {
            "kind": "labelled",
            "source": FILE,
            "reader": plain | form | dict(reader or {}),
        } | corpus
    encoders = {model["data"]["tokenizer"] for model in models.values()}
    return whole(
        {
            "experiment": "test",
            "data_seed": 1,
            "training_seed": 1,
            "corpora": corpora,
            "checkpoints": {encoder: {"source": FILE} for encoder in sorted(encoders)},
            "models": dict(models),
            "evaluation": {"bootstrap_samples": 100},
        }
    )


def write(params: Mapping[str, Any]) -> None:
    """Write params.yaml in the present folder."""
    Path("params.yaml").write_text(yaml.safe_dump(dict(params)), encoding="utf-8")


def begin(root: Path, monkeypatch: pytest.MonkeyPatch, settings: str = "threads: 1\n") -> None:
    """Work in a folder with these execution settings."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text(settings, encoding="utf-8")


def make_checkpoint(words: list[str], name: str = "tiny") -> None:
    """Make a pretrained encoder, and its tokenizer as the stage takes it, in the present workspace."""
    for folder in (layout.checkpoint(name), layout.tokenizer(name)):
        shutil.rmtree(folder, ignore_errors=True)
    make_tiny_bert(layout.checkpoint(name), words)
    import_tokenizer.main(name)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
