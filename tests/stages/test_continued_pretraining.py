"""A pretrained model's way through the stages: fetched, its tokenizer taken, a corpus encoded, trained on, trained on
again; each training starts with the very loss of the model it starts from."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lexmill import tokenizers
from lexmill.base import layout, storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.data.mixture import open_train, training_batches
from lexmill.evaluation.scoring import NetworkScorer
from lexmill.kinds.language_model.metrics import OffsetEncoder, score_documents
from lexmill.models import folder as model_folder
from lexmill.stages import checkpoint, encode, fetch, import_tokenizer, prepare, train
from lexmill.training import engine
from tests.support.pretrained import TEXTS, save_gpt2
from tests.support.small_project import whole

PEAK = 0.002
TUNED: dict[str, Any] = {
    "kind": "language_model",
    "family": "gpt",
    "shape": {"n_layer": 2, "n_head": 2, "d_model": 16, "context": 32, "dropout": 0.0},
    "data": {"corpus": "rows", "train": "rows", "tokenizer": "tiny"},
    "start": "artifacts/checkpoints/tiny",
    "recipe": {
        "method": "gradient",
        "optimizer": {"name": "adamw", "lr": PEAK},
        "schedule": {"name": "cosine", "warmup": "4 steps"},
        "length": "8 steps",
        "batch": 64,
        "validate_every": "4 steps",
        "keep": "last",
    },
    "evaluate": {},
}
PARAMS: dict[str, Any] = {
    "experiment": "test",
    "data_seed": 1,
    "training_seed": 2,
    "corpora": {
        "rows": {
            "kind": "text",
            "source": {"kind": "file", "paths": ["rows.txt"]},
            "reader": {"format": "text", "document": "line"},
            "splits": {"valid": 0.2, "test": 0.2},
        }
    },
    "checkpoints": {"tiny": {"source": {"kind": "file", "paths": ["gpt2/*"]}}},
    "models": {"tuned": TUNED, "again": TUNED | {"start": "artifacts/models/tuned"}},
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Everything up to the token shards; gives transformers' model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n")
    Path("params.yaml").write_text(yaml.safe_dump(whole(PARAMS)))
    Path("rows.txt").write_text("".join(f"{i} {text.strip()} {i * 7}\n" for i in range(20) for text in TEXTS[::2]))
    theirs = save_gpt2(tmp_path / "gpt2")
    checkpoint.main("tiny")
    import_tokenizer.main("tiny")
    fetch.main("rows")
    prepare.main("rows")
    encode.main("rows-tiny")
    return theirs


def first_batch() -> tuple[torch.Tensor, torch.Tensor]:
    batches = training_batches(open_train(layout.tokens("rows", "tiny")), 32, 64, PARAMS["data_seed"])
    inputs, targets = batches.rows(0, 0, 1)
    return torch.from_numpy(inputs).long(), torch.from_numpy(targets).long()


def curve(name: str) -> list[dict[str, str]]:
    with open(layout.curve(name), encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@torch.no_grad()
def loss(logits: torch.Tensor, targets: torch.Tensor) -> float:
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


def test_each_training_starts_with_the_loss_of_its_model(workspace: Any) -> None:
    inputs, targets = first_batch()
    train.main("tuned")
    rows = curve("tuned")
    with torch.no_grad():
        logits = workspace(inputs).logits
    assert float(rows[0]["train_loss"]) == pytest.approx(loss(logits, targets), rel=1e-5)
    # Re-warming: the rate climbs anew from near zero to its peak, then falls.
    rates = [float(row["lr"]) for row in rows]
    assert rates[:4] == pytest.approx([PEAK * step / 4 for step in (1, 2, 3, 4)], rel=1e-5)
    assert rates[-1] < PEAK
    assert float(rows[-1]["valid_loss"]) < math.log(300) * 2

    train.main("again")
    _, module = model_folder.load(layout.model("tuned"))
    with torch.no_grad():
        logits = module(inputs)
    assert float(curve("again")[0]["train_loss"]) == pytest.approx(loss(logits, targets), rel=1e-5)


def test_bits_per_byte_are_those_of_the_text(workspace: Any) -> None:
    """Nats summed by hand, bytes counted on the text itself."""
    train.main("tuned")
    _, module = model_folder.load(layout.model("tuned"))
    tokenizer = tokenizers.load(layout.model("tuned") / "tokenizer")
    text = "Grüße, the mill\n turns"
    scorer = NetworkScorer(module, 32, tokenizer.eos_id, 256)
    (found,) = score_documents([{"id": "a", "group": "a", "text": text}], OffsetEncoder(tokenizer), scorer)
    ids = [tokenizer.eos_id, *tokenizer.encode(text), tokenizer.eos_id]
    assert sum(row["bytes"] for row in found.rows) == len(text.encode())
    assert sum(row["targets"] for row in found.rows) == len(ids) - 1
    assert len(ids) <= 33  # one window
    with torch.no_grad():
        nats = loss(module(torch.tensor([ids[:-1]])), torch.tensor([ids[1:]])) * (len(ids) - 1)
    assert sum(row["nats"] for row in found.rows) == pytest.approx(nats, rel=1e-5)


def test_what_does_not_fit_is_reported_before_training(workspace: Any) -> None:
    wrong = TUNED | {"shape": TUNED["shape"] | {"n_layer": 3, "context": 64}}
    Path("params.yaml").write_text(yaml.safe_dump(whole({**PARAMS, "models": {"tuned": wrong}})))
    with pytest.raises(UserErrors, match=r"shape\.n_layer is 2 there, 3 in params.yaml"):
        train.main("tuned")
    Path("params.yaml").write_text(yaml.safe_dump(whole(PARAMS)))
    with pytest.raises(UserError, match="artifacts/models/tuned: start: this does not exist"):
        train.main("again")
    assert not layout.model("tuned").exists()


def test_another_start_is_another_training(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumed checkpoints are known by the bytes of what a training started from."""
    seen = []

    class NotTrained(Exception):
        pass

    def fit(*_: Any, identity: dict[str, Any], **__: Any) -> None:
        seen.append(identity["start"])
        raise NotTrained

    monkeypatch.setattr(engine, "fit", fit)
    with pytest.raises(NotTrained):
        train.main("tuned")
    path = layout.checkpoint("tiny") / "config.json"
    storage.write_json(path, storage.read_json(path) | {"note": "changed"})
    with pytest.raises(NotTrained):
        train.main("tuned")
    assert len(set(seen)) == 2
