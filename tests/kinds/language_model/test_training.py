"""The stage on a tiny workspace: what it reads, writes and refuses, and what it imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.data.encoding import encode_corpus
from lexmill.models import folder as model_folder
from lexmill.stages import train
from lexmill.tokenizers import kinds, load, saving
from lexmill.training import engine
from tests.support.small_project import MODEL, params_of, whole

PARAMS = params_of(steps=8)
TEXTS = [{"text": "abcdabcdabcd"[start : start + 9]} for start in range(4)]


def make_tokenizer(letters: str) -> None:
    folder = layout.tokenizer("letters")
    folder.mkdir(parents=True, exist_ok=True)
    saving.save(kinds.assemble("character", kinds.character_model(list(letters)), lowercase=False), folder)


def encode(**splits: list[dict[str, str]]) -> None:
    with storage.new_folder(layout.tokens("rows", "letters")) as folder:
        encode_corpus(folder, "text", splits, load(layout.tokenizer("letters")), "0" * 64)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n")
    Path("gpt2.yaml").write_text("name: gpt2\nstd: 0.02\n")
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS))
    make_tokenizer("abcd")
    encode(train=TEXTS * 20, valid=TEXTS[:2])
    return tmp_path


def choose(**changes: dict[str, Any]) -> None:
    """Write params.yaml with other keys of the model's parts."""
    model = MODEL | {part: MODEL[part] | keys for part, keys in changes.items()}
    Path("params.yaml").write_text(yaml.safe_dump(whole({**PARAMS, "models": {"toy": model}})))


def outputs() -> dict[str, str]:
    paths = (path for place in ("artifacts/models", "metrics", "reports") for path in Path(place).rglob("*"))
    return {str(path): storage.sha256_file(path) for path in paths if path.is_file()}


def test_it_writes_a_model_that_loads_and_the_same_bytes_again(workspace: Path) -> None:
    train.main("toy")
    config, module = model_folder.load(layout.model("toy"))
    tokenizer = load(layout.model("toy") / "tokenizer")
    assert config["kind"] == "language_model"
    assert config["tokenizer_fingerprint"] == tokenizer.fingerprint
    assert config["vocab_size"] == tokenizer.vocab_size == 9
    metrics = storage.read_json(layout.metrics("train", "toy"))
    assert (metrics["steps"], metrics["tokens"]) == (8, 512)
    assert metrics["parameters"] == sum(p.numel() for p in module.parameters())
    # The stored loss is that of the stored weights: each token once, first from the end token.
    split = [token for text in TEXTS[:2] for token in [*tokenizer.encode(text["text"]), tokenizer.eos_id]]
    rows = [tokenizer.eos_id, *split]
    nats = 0.0
    for start in range(0, len(split), 16):
        piece = torch.tensor(rows[start : min(start + 16, len(split)) + 1])
        logits = module(piece[None, :-1])[0]
        nats += torch.nn.functional.cross_entropy(logits, piece[1:], reduction="sum").item()
    assert metrics["valid_loss"] == pytest.approx(nats / len(split), rel=1e-5)
    header, *lines = layout.curve("toy").read_text().splitlines()
    assert header == "step,tokens,epoch,train_loss,valid_loss,lr,grad_norm,skipped"
    assert len(lines) == 8
    first = outputs()
    assert not list((workspace / ".lexmill" / "checkpoints").iterdir())
    train.main("toy")
    assert outputs() == first


def test_micro_batches_are_not_identity(workspace: Path) -> None:
    train.main("toy")
    whole = storage.read_json(layout.metrics("train", "toy"))
    Path("execution.yaml").write_text("threads: 1\nmicro_batch: 16\n")
    Path("params.yaml").write_text(yaml.safe_dump(PARAMS).replace("dropout: 0.1", "dropout: 0.0"))
    train.main("toy")
    cut = storage.read_json(layout.metrics("train", "toy"))
    Path("execution.yaml").write_text("threads: 1\n")
    train.main("toy")
    assert cut == pytest.approx(storage.read_json(layout.metrics("train", "toy")), rel=1e-5)
    assert cut["valid_loss"] != whole["valid_loss"]


def test_an_unknown_name_is_refused_with_the_nearest_known(workspace: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'toy'"):
        train.main("toi")


def test_shards_of_another_tokenizer_are_refused(workspace: Path) -> None:
    make_tokenizer("abcde")
    with pytest.raises(UserError, match="another tokenizer"):
        train.main("toy")
    assert not layout.model("toy").exists()


class NotTrained(Exception):
    """Raised in place of a training."""


def caught(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What trainings are known by, one after the other; none is made."""
    seen: list[str] = []

    def fit(*_: Any, identity: dict[str, Any], **__: Any) -> None:
        seen.append(storage.canonical_json(identity))
        raise NotTrained

    monkeypatch.setattr(engine, "fit", fit)
    return seen


def test_a_tokenizer_that_loses_text_is_refused(workspace: Path) -> None:
    """WordPiece keeps no white space: a loss by byte would mean nothing."""
    folder = layout.tokenizer("letters")
    fake = {"eos": 3, "bos": 2, "pad": 0, "mask": 4, "unk": 1, "unseen": [0, 2, 3, 4], "origin": "0" * 64}
    storage.write_json(
        folder / "special_tokens.json", fake | {"cuts_at_space": False, "space_mark": False, "keeps_text": False}
    )
    with pytest.raises(UserError, match="does not give texts back"):
        train.main("toy")
    assert not layout.model("toy").exists()


def test_a_checkpoint_belongs_to_whatever_was_learned_from(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that goes on with other texts, another tokenizer or another start would be taken for the same one."""
    seen = caught(monkeypatch)

    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: encode(train=TEXTS[::-1] * 20, valid=TEXTS[:2]),  # as many, as long
        lambda: encode(train=TEXTS[::-1] * 20, valid=TEXTS[2:]),
        lambda: (make_tokenizer("dcba"), encode(train=TEXTS[::-1] * 20, valid=TEXTS[2:])),
        lambda: Path("gpt2.yaml").write_text("name: gpt2\nstd: 0.03\n"),
        lambda: choose(recipe={"batch": 128}),
        lambda: choose(recipe={"batch": 128}, data={"mask_documents": True}),
        lambda: Path("params.yaml").write_text(Path("params.yaml").read_text().replace("data_seed: 1", "data_seed: 5")),
    ]
    for change in changes:
        change()
        with pytest.raises(NotTrained):
            train.main("toy")
    assert len(set(seen)) == len(changes)
    with pytest.raises(NotTrained):
        train.main("toy")
    assert seen[-1] == seen[-2]


@pytest.mark.parametrize("split", ["train", "valid"])
def test_an_empty_split_is_named(workspace: Path, split: str) -> None:
    encode(**{"train": TEXTS, "valid": TEXTS, split: []})
    with pytest.raises(UserError, match=f"the {split} split holds no tokens"):
        train.main("toy")


def test_a_learning_rate_that_breaks_it_is_reported(workspace: Path) -> None:
    choose(recipe={"optimizer": {"name": "adamw", "lr": 1.0, "weight_decay": 1e15}})
    with pytest.raises(UserError, match=r"valid loss is not finite after step 3 .*lower optimizer\.lr"):
        train.main("toy")
    assert outputs() == {}


# A machine that has only torch, lightning, tokenizers, safetensors, numpy and pyyaml: the others cannot be found.
BARE_MACHINE = """
import importlib.metadata, sys
from importlib.machinery import PathFinder
absent = set(sys.argv[1].split())

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, *rest):
        return None if name.split(".")[0] in absent else super().find_spec(name, *rest)

found = importlib.metadata.Distribution.from_name
def from_name(name):
    if name.split(".")[0].lower().replace("-", "_") in absent | {"scikit_learn"}:
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)

importlib.metadata.Distribution.from_name = from_name
sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
from lexmill.stages import train
train.main("toy")
assert not absent & sys.modules.keys()
"""
ABSENT = (
    "datasets transformers sacrebleu sklearn scipy pandas matplotlib datasketch unearth zstandard psutil dvc hydra"
    " omegaconf mlflow prefect typer rich pyarrow langcodes"
)


def test_it_runs_on_a_bare_training_machine(workspace: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE_MACHINE, ABSENT],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert layout.model("toy").is_dir()
